"""/metrics and /health of a whole broker, as a scraper and a health check see them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from klamm.core.env.real import real_env
from klamm.core.options import Options
from klamm.log.manager import LogManager
from klamm.server import metrics
from klamm.server.node import Node, StartError

DOCS = Path(__file__).parents[3] / "docs"

Samples: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]


def labelled(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


class Keeper:
    """One broker and who looks after it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def bootstrap(self) -> str:
        return self.node.addresses[0]

    async def get(self, path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.metrics_port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body.decode()

    async def scrape(self) -> Samples:
        status, text = await self.get("/metrics")
        assert status == 200
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            assert family.documentation, family.name
            for sample in family.samples:
                key = labelled(sample.name, **sample.labels)
                assert key not in found, f"{key} is there twice"
                found[key] = sample.value
        return found

    async def health(self) -> tuple[int, Any]:
        status, text = await self.get("/health")
        return status, json.loads(text)

    async def produce(self, topic: str, count: int, size: int = 100) -> None:
        def work() -> None:
            producer = Producer({"log_level": 0, "bootstrap.servers": self.bootstrap, "acks": "all"})
            for _ in range(count):
                producer.produce(topic, os.urandom(size))
            assert producer.flush(30) == 0

        await asyncio.to_thread(work)

    async def consume(self, topic: str, count: int) -> None:
        def work() -> None:
            consumer = Consumer(
                {"log_level": 0, "bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False}
            )
            consumer.assign([TopicPartition(topic, 0, 0)])
            got = 0
            while got < count:
                got += len(consumer.consume(count - got, 30))
            consumer.close()

        await asyncio.to_thread(work)


Start: TypeAlias = Callable[..., Awaitable[Keeper]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    running: list[Node] = []

    async def begin(data: str = "data", **given: str) -> Keeper:
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "klamm_metrics_listener": "127.0.0.1:0", **given}
        options = Options.from_mapping({name.replace("_", "."): value for name, value in given.items()})
        node = Node(real_env(), str(tmp_path / data), options)
        await node.start()
        running.append(node)
        return Keeper(node)

    yield begin
    for node in running:
        await node.stop()
        node.env.executor.close()


async def test_the_page_counts_what_clients_do(start: Start) -> None:
    keeper = await start()
    await keeper.produce("orders", 50)
    await keeper.consume("orders", 50)
    found = await keeper.scrape()
    assert found[labelled("klamm_ready")] == 1
    produced = found[labelled("klamm_requests_total", api="Produce")]
    assert 1 <= produced <= 50
    assert found[labelled("klamm_request_duration_seconds_count", api="Produce")] == produced
    assert found[labelled("klamm_request_duration_seconds_bucket", api="Produce", le="+Inf")] == produced
    assert found[labelled("klamm_request_bytes_total", api="Produce")] > 50 * 100
    assert found[labelled("klamm_response_bytes_total", api="Fetch")] > 50 * 100
    assert found[labelled("klamm_log_end_offset", topic="orders", partition="0")] == 50
    assert found[labelled("klamm_log_start_offset", topic="orders", partition="0")] == 0
    size = found[labelled("klamm_log_size_bytes", topic="orders", partition="0")]
    assert size == found[labelled("klamm_logs_size_bytes")] > 50 * 100
    assert found[labelled("klamm_topic_received_bytes_total", topic="orders")] == size
    assert found[labelled("klamm_topic_sent_bytes_total", topic="orders")] >= size
    assert found[labelled("klamm_connections", listener="PLAINTEXT")] >= 0
    assert found[labelled("klamm_connections_opened_total")] >= 2
    counted = found[labelled("klamm_topics")], found[labelled("klamm_partitions")]
    assert counted in ((1, 1), (2, 51))  # librdkafka may have asked for the coordinator of its group by now
    assert found[labelled("process_resident_memory_bytes")] > 1_000_000
    assert found[labelled("process_open_fds")] > 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_groups_are_shown_by_state_and_come_back_after_a_restart(start: Start, protocol: str) -> None:
    keeper = await start(group_initial_rebalance_delay_ms="0")
    await keeper.produce("orders", 10)

    def begin() -> Consumer:
        consumer = Consumer(
            {
                "log_level": 0,
                "bootstrap.servers": keeper.bootstrap,
                "group.id": "g",
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        consumer.consume(10, 30)
        consumer.commit(asynchronous=False)
        return consumer

    consumer = await asyncio.to_thread(begin)
    found = await keeper.scrape()
    assert found[labelled("klamm_groups", type=protocol, state="Stable")] == 1
    assert sum(value for (name, _), value in found.items() if name == "klamm_groups") == 1
    assert found[labelled("klamm_group_members", type=protocol)] == 1
    assert found[labelled("klamm_group_rebalances_total", type=protocol)] >= 1
    assert found[labelled("klamm_group_offsets")] == found[labelled("klamm_group_offset_commits_total")] == 1
    assert found[labelled("klamm_coordinator_shards", coordinator="group", state="loaded")] == 1
    assert found[labelled("klamm_coordinator_events_total", coordinator="group")] >= 3
    await asyncio.to_thread(consumer.close)
    assert (await keeper.scrape())[labelled("klamm_groups", type=protocol, state="Empty")] == 1
    await keeper.node.stop()
    again = await start()
    while (found := await again.scrape())[labelled("klamm_coordinator_loads_total", coordinator="group")] < 1:
        pass  # it loads in the background
    assert found[labelled("klamm_coordinator_load_seconds_total", coordinator="group")] > 0
    assert found[labelled("klamm_groups", type=protocol, state="Empty")] == 1
    assert found[labelled("klamm_group_offsets")] == 1
    assert found[labelled("klamm_group_offset_commits_total")] == 0, "since the start"


async def test_transactions_are_shown_by_state_and_counted_by_their_end(start: Start) -> None:
    keeper = await start()

    def work() -> None:
        producer = Producer({"log_level": 0, "bootstrap.servers": keeper.bootstrap, "transactional.id": "x"})
        producer.init_transactions(30)
        for end in (producer.commit_transaction, producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("orders", b"value")
            producer.flush(30)
            end(30)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(30)

    await asyncio.to_thread(work)
    found = await keeper.scrape()
    assert found[labelled("klamm_transactions", state="Ongoing")] == 1
    assert found[labelled("klamm_transactions_committed_total")] == 2
    assert found[labelled("klamm_transactions_aborted_total")] == 1
    assert found[labelled("klamm_transactions_timed_out_total")] == 0
    assert found[labelled("klamm_transaction_markers_pending")] == 0


async def test_counters_only_grow_and_errors_are_named(start: Start) -> None:
    keeper = await start(auto_create_topics_enable="false")

    def ask_for_a_topic_that_is_not_there() -> None:
        Producer({"log_level": 0, "bootstrap.servers": keeper.bootstrap}).list_topics("no-such-topic", timeout=30)

    await asyncio.to_thread(ask_for_a_topic_that_is_not_there)
    before = await keeper.scrape()
    assert before[labelled("klamm_errors_total", api="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION")] >= 1
    await asyncio.to_thread(ask_for_a_topic_that_is_not_there)
    after = await keeper.scrape()
    for key, value in before.items():
        if key[0].endswith(("_total", "_count", "_bucket")):
            assert after[key] >= value, key


async def test_logs_that_nobody_opened_since_the_start_are_there_with_their_size(start: Start) -> None:
    first = await start()
    await first.produce("orders", 20)
    before = await first.scrape()
    await first.node.stop()
    again = await start()
    for _ in range(2):  # the second time from memory
        after = await again.scrape()
        for name in ("klamm_log_size_bytes", "klamm_log_end_offset", "klamm_log_durable_offset"):
            assert after[labelled(name, topic="orders", partition="0")] > 0
        assert after[labelled("klamm_logs_size_bytes")] == before[labelled("klamm_logs_size_bytes")]
    assert not any(log.touched for log in logs_of(again).logs())


async def test_single_partitions_are_left_out_when_there_are_many_or_nobody_wants_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = await start(num_partitions="3")
    quiet = await start("quiet", num_partitions="3", klamm_metrics_partitions="false")
    for place in (keeper, quiet):
        await place.produce("orders", 300)
    assert labelled("klamm_log_end_offset", topic="orders", partition="0") in await keeper.scrape()
    monkeypatch.setattr(metrics, "MAX_PARTITIONS", 0)
    many = await keeper.scrape()
    monkeypatch.undo()
    for found in (many, await quiet.scrape()):
        assert not any(key[0].startswith(("klamm_log_", "klamm_topic_")) for key in found)
        assert found[labelled("klamm_partitions")] == 3
        assert found[labelled("klamm_logs_size_bytes")] > 0


async def test_health_is_ok_while_requests_are_served(start: Start) -> None:
    keeper = await start()
    status, body = await keeper.health()
    assert status == 200
    assert body["status"] == "ready"
    assert body["node_id"] == 1


async def test_health_says_that_a_start_is_under_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    open_logs = LogManager.open

    async def slowly(*args: Any, **kwargs: Any) -> LogManager:
        reached.set()
        await go_on.wait()
        return await open_logs(*args, **kwargs)

    monkeypatch.setattr(LogManager, "open", slowly)
    nodes: list[Node] = []
    begin = Node.start

    async def note(node: Node) -> None:
        nodes.append(node)
        await begin(node)

    monkeypatch.setattr(Node, "start", note)
    starting = asyncio.create_task(start())  # type: ignore[arg-type]
    await reached.wait()
    keeper = Keeper(nodes[0])
    status, body = await keeper.health()
    assert (status, body["status"]) == (503, "starting")
    assert (await keeper.scrape())[labelled("klamm_ready")] == 0
    go_on.set()
    assert (await (await starting).health())[0] == 200


async def test_health_says_that_it_stops(start: Start) -> None:
    keeper = await start()
    monitor = keeper.node._monitor
    assert monitor is not None
    monitor.stopping()
    status, body = await keeper.health()
    assert (status, body["status"]) == (503, "stopping")


async def test_health_names_the_logs_that_are_offline(start: Start) -> None:
    keeper = await start()
    await keeper.produce("orders", 1)
    log = logs_of(keeper).get("orders", 0)
    assert log is not None
    log._fail("the disk is gone")
    status, body = await keeper.health()
    assert (status, body["status"]) == (503, "degraded")
    assert "orders-0" in body["reasons"][0]
    assert (await keeper.scrape())[labelled("klamm_partitions_offline")] == 1


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999"])
async def test_an_address_that_is_none_is_one_sentence(start: Start, address: str) -> None:
    with pytest.raises(StartError, match=r"klamm\.metrics\.listener"):
        await start(klamm_metrics_listener=address)


async def test_an_address_in_use_is_one_sentence(start: Start) -> None:
    taken = (await start()).node.metrics_port
    with pytest.raises(StartError, match=str(taken)):
        await start("other", klamm_metrics_listener=f"127.0.0.1:{taken}")


async def test_without_the_option_nothing_listens(start: Start) -> None:
    keeper = await start(klamm_metrics_listener="")
    assert keeper.node.metrics_port is None


def logs_of(keeper: Keeper) -> LogManager:
    logs = keeper.node._logs
    assert logs is not None
    return logs


async def test_the_docs_have_every_name_and_no_other(start: Start) -> None:
    keeper = await start()
    await keeper.produce("orders", 1)
    _, text = await keeper.get("/metrics")
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    _, _, table = (DOCS / "metrics.md").read_text().partition("## All of them")
    assert set(re.findall(r"`((?:klamm|process)_\w+)`", table)) == served
