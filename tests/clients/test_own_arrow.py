"""Record batches of Arrow, from Klamm and from Apache Kafka: every codec, transactions, a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.aio import Consumer, Producer

pytest.importorskip("pyarrow")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(params=["klamm", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("broker" if request.param == "klamm" else "apache_kafka")
    return str(server.bootstrap)


async def rows(consumer: Consumer, count: int, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(30):
        async for record_batch in consumer.arrow(**options):
            record_batch.validate(full=True)
            found += record_batch.to_pylist()
            if len(found) >= count:
                break
    return found


async def test_records_of_every_codec_come_as_columns(bootstrap: str, topic: str) -> None:
    for number, codec in enumerate(CODECS):
        async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            values = [b"%d/%d" % (number, n) for n in range(1000)]
            await producer.send_many(topic, values, partition=0, headers=[(("codec", codec.encode()),)] * 1000)
    async with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        found = await rows(consumer, 5000, max_rows=777, headers=True)
    assert [row["value"] for row in found] == [b"%d/%d" % (number, n) for number in range(5) for n in range(1000)]
    assert [row["offset"] for row in found] == list(range(5000))
    assert {(row["topic"], row["partition"], row["timestampType"], row["key"]) for row in found} == {
        (topic, 0, 0, None)
    }
    assert found[1500]["headers"] == [{"key": "codec", "value": b"gzip"}]


async def test_a_group_goes_on_behind_the_rows_it_has_committed(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer") as producer:
        for number in range(6):
            await producer.begin()
            await producer.send_many(topic, [b"%d" % number] * 10, partition=0)
            await producer.flush()
            await (producer.abort() if number % 2 else producer.commit())
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": f"{topic}-readers",
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
    }
    async with Consumer(topic, **options) as consumer:
        first = await rows(consumer, 13, max_rows=13)
        await consumer.commit()
    async with Consumer(topic, **options) as consumer:
        second = await rows(consumer, 17)
    assert [len(first), len(second)] == [13, 17]
    assert [row["value"] for row in first + second] == [b"0"] * 10 + [b"2"] * 10 + [b"4"] * 10


async def test_reading_up_to_an_offset_ends_also_where_no_records_are(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer") as producer:
        for number in range(3):
            await producer.begin()
            await producer.send_many(topic, [b"%d" % number] * 10, partition=0)
            await producer.flush()
            await (producer.abort() if number else producer.commit())
    options = {"bootstrap_servers": bootstrap, "isolation_level": "read_committed"}
    async with Consumer(**options) as consumer, asyncio.timeout(30):
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        end = (await consumer.end_offsets((topic, 0)))[topic, 0]
        found = [batch.num_rows async for batch in consumer.arrow(until={(topic, 0): end})]  # no timeout: it must end
        assert (sum(found), await consumer.position((topic, 0))) == (10, end)
        assert [batch async for batch in consumer.arrow(until={(topic, 0): end})] == []
