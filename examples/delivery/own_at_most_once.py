"""At most once: commit first, work afterwards. What was committed and not yet done when the worker dies is lost."""

from common import die, main
from with_klamm import batches, member

from klamm import Producer


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    with (
        member(bootstrap, f"at-most-once-{source}", source) as consumer,
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
    ):
        for records in batches(consumer):
            consumer.commit()
            for record in records:
                die(dies, record.value)
                producer.send(target, record.value)


if __name__ == "__main__":
    main(work)
