"""Exactly once: what was read and what was written are one transaction. When the worker dies, neither has happened.

Its open transaction is aborted by the next worker, which takes over the same transactional id. Only who reads
uncommitted records sees what became of it.
"""

from common import Stage, die, main
from confluent_kafka import Producer, TopicPartition
from with_confluent import batches, subscribed


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"exactly-once-{source}"}
    producer = Producer({**settings, "log_level": 3})  # it would tell that it waits for the abort
    producer.init_transactions(30)
    consumer = subscribed(bootstrap, f"exactly-once-{source}", source)
    for messages in batches(consumer):
        producer.begin_transaction()
        for message in messages:
            die(dies, message.value())
            producer.produce(target, message.value())
            producer.flush()
        last = messages[-1]
        position = TopicPartition(source, last.partition(), last.offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    consumer.close()


if __name__ == "__main__":
    main(work, Stage.report_aborted)
