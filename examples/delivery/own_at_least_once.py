"""At least once: work first, commit afterwards. What was done but not committed when the worker dies is done again."""

from common import die, main
from with_klamm import batches, member

from klamm import Producer


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    with (
        member(bootstrap, f"at-least-once-{source}", source) as consumer,
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
    ):
        for records in batches(consumer):
            for record in records:
                die(dies, record.value)
                producer.send(target, record.value)
            consumer.commit()


if __name__ == "__main__":
    main(work)
