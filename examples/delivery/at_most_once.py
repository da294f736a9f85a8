"""At most once: commit first, work afterwards. What was committed and not yet done when the worker dies is lost."""

from common import die, main
from confluent_kafka import Producer
from with_confluent import batches, subscribed


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    consumer = subscribed(bootstrap, f"at-most-once-{source}", source)
    producer = Producer({"bootstrap.servers": bootstrap})
    for messages in batches(consumer):
        consumer.commit(message=messages[-1], asynchronous=False)
        for message in messages:
            die(dies, message.value())
            producer.produce(target, message.value())
            producer.flush()
    consumer.close()


if __name__ == "__main__":
    main(work)
