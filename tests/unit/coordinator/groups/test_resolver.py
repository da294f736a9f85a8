"""Regular expressions are resolved beside the shard, whatever becomes of it meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.controller import NewTopic
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeat import Client
from klamm.coordinator.groups.consumer.regexes import NAMES_PER_SLICE, resolving
from klamm.coordinator.groups.consumer.resolver import RegexResolver
from klamm.coordinator.groups.machine import GroupMachine
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.core.slices import at_once
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.coordinators import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site[GroupMachine]]:
    site = Site(tmp_path, lambda: GroupMachine(lambda: site.options, site.env.uuid))
    await site.start()
    await site.coordinator.ensure_topic()
    await site.controller.create_topics([NewTopic(name, 1) for name in ("a1", "a2", "b")])
    site.coordinator.on_effect = RegexResolver(site.coordinator, lambda: site.publisher.image)
    yield site
    await site.stop()


async def join(site: Site[GroupMachine], may_see: Callable[[str], bool] = lambda topic: True) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex="a.*",
        topic_partitions=[],
    )

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        return machine.consumer.heartbeat(request, Client("c", "/h", may_see), reply, now)

    return await site.answer("g", decide)


def group_of(site: Site[GroupMachine]) -> ConsumerGroup:
    (group,) = (machine.groups["g"] for _, machine in site.coordinator.shards() if machine.groups)
    assert isinstance(group, ConsumerGroup)
    return group


async def resolved(site: Site[GroupMachine]) -> frozenset[str]:
    while not group_of(site).resolved:
        await asyncio.sleep(0)
    return group_of(site).resolved["a.*"].topics


async def test_what_was_found_is_kept_in_the_log(site: Site[GroupMachine]) -> None:
    assert (await join(site, lambda topic: topic != "a2")).error_code == 0
    assert await resolved(site) == {"a1"}
    before = group_of(site).durable()
    await site.kill()
    await site.start()
    await site.ready()
    assert group_of(site).durable() == before


async def test_a_shard_that_has_gone_meanwhile_does_not_hear_of_it(
    site: Site[GroupMachine], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await join(site)
    site.coordinator.close()
    while "were not kept" not in caplog.text:
        await asyncio.sleep(0)


async def test_a_resolution_that_fails_is_tried_again(site: Site[GroupMachine]) -> None:
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))

    def broken(topic: str) -> bool:
        raise RuntimeError("no answer")

    await join(site, broken)
    while not failed:
        await asyncio.sleep(0)
    await join(site)
    assert await resolved(site) == {"a1", "a2"}


def test_others_have_their_turn_while_many_names_are_matched() -> None:
    names = [f"t{number}" for number in range(3 * NAMES_PER_SLICE)]
    turns = sum(1 for _ in resolving(["t.*", "t1", "("], names))
    assert turns == 6
    found = at_once(resolving(["t.*", "t1", "("], names))
    assert found == {"t.*": set(names), "t1": {"t1"}, "(": set()}
