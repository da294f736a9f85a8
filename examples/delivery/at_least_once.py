"""At least once: work first, commit afterwards. What was done but not committed when the worker dies is done again."""

from common import die, main
from confluent_kafka import Producer
from with_confluent import batches, subscribed


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    consumer = subscribed(bootstrap, f"at-least-once-{source}", source)
    producer = Producer({"bootstrap.servers": bootstrap})
    for messages in batches(consumer):
        for message in messages:
            die(dies, message.value())
            producer.produce(target, message.value())
            producer.flush()
        consumer.commit(message=messages[-1], asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(work)
