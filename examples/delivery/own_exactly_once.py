"""Exactly once: what was read and what was written are one transaction. When the worker dies, neither has happened.

Its open transaction is aborted by the next worker, which takes over the same transactional id. Only who reads
uncommitted records sees what became of it. Here with asyncio.
"""

import asyncio

from common import BATCH, NUMBERS, Stage, die, main

from klamm.aio import Consumer, Producer


async def transform(bootstrap: str, source: str, target: str, dies: bool) -> None:
    name = f"exactly-once-{source}"
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=0) as producer,
        Consumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,  # so long the group waits for the worker that was killed
            heartbeat_interval_ms=2000,
        ) as consumer,
    ):
        async for batch in consumer.batches(BATCH):
            async with producer.transaction():
                for record in batch.records:
                    die(dies, record.value)
                    await producer.send(target, record.value)
                positions = {(batch.topic, batch.partition): batch.next_offset}
                await producer.send_offsets(positions, consumer.group_metadata())
            if int(batch.records[-1].value) == NUMBERS - 1:
                return


def work(bootstrap: str, source: str, target: str, dies: bool) -> None:
    asyncio.run(transform(bootstrap, source, target, dies))


if __name__ == "__main__":
    main(work, Stage.report_aborted)
