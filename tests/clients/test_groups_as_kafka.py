"""What members of classic groups and those who commit hear, request by request: the same as from Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from klamm.core.errors import ErrorCode
from support.apache_kafka import ApacheKafka
from support.conversation import Conversation, Ids, heard_by
from support.downloads import FETCH_LIMIT_S
from support.group_requests import (
    beat,
    commit,
    delete,
    delete_offsets,
    describe,
    fetch,
    fetch_one,
    join,
    leave,
    leave_alone,
    of_group,
    sync,
)
from support.process import BrokerProcess

TOPICS = ("compared-a", "compared-b")
A, B = TOPICS


async def begin(talk: Conversation) -> Ids:
    """With topics, and a coordinator that answers. The topics' ids."""
    ids = await talk.begin(TOPICS)
    loaded = beat("nobody", "nobody", 1)
    await talk.until("one", loaded, lambda answer: answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID)
    return ids


async def state(talk: Conversation, group: str, name: str, members: int) -> None:
    """Wait until the group is in it, with so many members."""

    def is_there(answer: object) -> bool:
        (one,) = answer.groups  # type: ignore[attr-defined]
        return bool(one.group_state == name and len(one.members) == members)

    await talk.until("watch", describe(group), is_there)


async def every_version(talk: Conversation, ids: Ids) -> None:
    for version in range(10):
        group = f"versions-{version}"
        answer = await talk.tell("joins", "one", join(group), version)
        me = answer.member_id
        if answer.error_code:
            await state(talk, group, "Empty", 0)  # Kafka answers before that is committed
            await talk.tell("with a pending member", "one", describe(group), 6)
            answer = await talk.tell("joins with its id", "one", join(group, me), version)
        at = answer.generation_id
        await talk.tell("while it completes", "watch", describe(group), 6)
        await talk.tell("commits too early", "one", commit(group, [(A, 0, 5)], me, at, ids=ids), 8)
        await talk.tell("joins again while it completes", "one", join(group, me), version)
        await talk.tell("beats", "one", beat(group, me, at), min(version, 4))
        await talk.tell("syncs", "one", sync(group, me, at, {me: b"mine", "nobody": b"x"}), min(version, 5))
        await talk.tell("syncs again", "one", sync(group, me, at), min(version, 5))
        for described in range(7):
            await talk.tell("stable", "watch", describe(group), described)
        if version < 3:
            for _ in range(2):
                await talk.tell("leaves", "one", leave_alone(group, me), version)
        else:
            leaving = leave(group, (me, None), ("x", None), ("", None), ("", "i"), (me, None))
            await talk.tell("leaves", "one", leaving, min(version, 5))
        for described in (0, 5, 6):
            await talk.tell("empty", "watch", describe(group), described)
        await talk.tell("beats when it is gone", "one", beat(group, me, at), min(version, 4))
        await talk.tell("syncs when it is gone", "one", sync(group, me, at), min(version, 5))
        await talk.tell("joins when it is gone", "one", join(group, me), version)


async def mistakes(talk: Conversation, ids: Ids) -> None:
    for version in range(10):
        await talk.tell("joins no group", "one", join(""), version)
        await talk.tell("too short a session", "one", join("mistakes", session_ms=1), version)
        await talk.tell("too long a session", "one", join("mistakes", "m", session_ms=10**9), version)
        await talk.tell("a member of no group", "one", join("none", "m"), version)
        await talk.tell("no protocols", "one", join(f"no-protocols-{version}", protocols={}), version)
        await talk.tell("no type", "one", join(f"no-type-{version}", kind=""), version)
        await talk.tell("an unknown member", "one", join("versions-0", "m"), version)
        if version >= 5:
            await talk.tell("an unknown static member", "one", join("versions-0", "m", instance="i"), version)
    for version in range(6):
        await talk.tell("syncs no group", "one", sync("", "m", 1), version)
        await talk.tell("syncs with none", "one", sync("none", "m", 1), version)
        await talk.tell("syncs without protocol", "one", sync("none", "m", 1, kind=None, protocol=None), version)
        for group in ("", "none"):
            if version < 3:
                await talk.tell(f"leaves {group!r}", "one", leave_alone(group, "m"), version)
            else:
                await talk.tell(f"leaves {group!r}", "one", leave(group, ("m", None), ("", "i")), version)
                await talk.tell(f"nobody leaves {group!r}", "one", leave(group), version)
    for version in range(5):
        for group in ("", "none"):
            await talk.tell(f"beats in {group!r}", "one", beat(group, "m", 1), version)
    for version in range(7):
        await talk.tell("describes what is not there", "one", describe("none", "", "none"), version)
        await talk.tell("describes nothing", "one", describe(), version)
    for version in range(3):
        await talk.tell("deletes what is not there", "one", delete("none", "", "none"), version)


async def a_rebalance(talk: Conversation, ids: Ids) -> None:
    group, mine, others = "rebalance", {"range": b"r1", "robin": b"q1"}, {"range": b"r2"}
    one = (await talk.tell("one joins", "one", join(group, protocols=mine), 3)).member_id
    await talk.tell("one syncs", "one", sync(group, one, 1, {one: b"a1"}), 3)
    await talk.tell("another type", "two", join(group, kind="connect"), 9)
    await talk.tell("another protocol", "two", join(group, protocols={"other": b""}), 9)
    await talk.tell("another protocol, with an id", "two", join(group, "m", protocols={"other": b""}), 9)
    joins = asyncio.create_task(talk.ask("two", join(group, protocols=others), 2))
    await state(talk, group, "PreparingRebalance", 2)
    await talk.tell("preparing", "watch", describe(group), 6)
    for member, generation in ((one, 1), (one, 0), ("", -1), ("m", 1)):
        await talk.tell("commits", "watch", commit(group, [(A, 0, 7)], member, generation, ids=ids), 8)
    await talk.tell("one beats", "one", beat(group, one, 1), 4)
    for generation in (1, 0):
        await talk.tell("one syncs too late", "one", sync(group, one, generation), 5)
    leader = (await talk.tell("one joins again", "one", join(group, one, protocols=mine), 9)).leader
    answer = await joins
    talk.note("two has joined", answer)
    two = answer.member_id
    assert leader == one
    await talk.tell("another type", "one", sync(group, one, 2, kind="connect"), 5)
    await talk.tell("another protocol", "one", sync(group, one, 2, protocol="other"), 5)
    await talk.tell("two joins again", "two", join(group, two, protocols=others), 9)
    await talk.tell("completing", "watch", describe(group), 6)
    await talk.tell("is deleted", "watch", delete(group), 2)
    syncs = asyncio.create_task(talk.ask("two", sync(group, two, 2), 5))
    await talk.tell("one syncs", "one", sync(group, one, 2, {two: b"a2"}), 5)
    talk.note("two has synced", await syncs)
    await talk.tell("stable", "watch", describe(group), 6)
    await talk.tell("is deleted", "watch", delete(group), 2)
    await talk.tell("two joins again", "two", join(group, two, protocols=others), 9)
    joins = asyncio.create_task(talk.ask("two", join(group, two, protocols={"range": b"changed"}), 9))
    await state(talk, group, "PreparingRebalance", 2)
    await talk.tell("two is removed", "watch", leave(group, (two, None)), 5)
    talk.note("two hears of it", await joins)
    await talk.tell("described", "watch", describe(group), 6)


async def static_members(talk: Conversation, ids: Ids) -> None:
    for version in (5, 7, 9):
        group, sync_version = f"static-{version}", 5 if version == 9 else 3
        old = (await talk.tell("joins", "one", join(group, instance="i"), version)).member_id
        await talk.tell("syncs", "one", sync(group, old, 1, {old: b"a1"}, instance="i"), sync_version)
        await talk.tell("another instance", "one", sync(group, old, 1, instance="other"), sync_version)
        await talk.tell("another member", "one", sync(group, "m", 1, instance="i"), sync_version)
        await talk.tell("another member beats", "one", beat(group, "m", 1, "i"), 4)
        await talk.tell("beats without its instance", "one", beat(group, old, 1), 4)
        new = (await talk.tell("comes back", "one", join(group, instance="i"), version)).member_id
        await talk.tell("described", "watch", describe(group), 6)
        await talk.tell("syncs", "one", sync(group, new, 1, instance="i"), sync_version)
        await talk.tell("a zombie beats", "two", beat(group, old, 1, "i"), 4)
        await talk.tell("a zombie beats without its instance", "two", beat(group, old, 1), 4)
        await talk.tell("a zombie joins", "two", join(group, old, instance="i"), version)
        await talk.tell("a zombie commits", "two", commit(group, [(A, 0, 1)], old, 1, "i", ids=ids), 8)
        await talk.tell("a zombie syncs", "two", sync(group, old, 1, instance="i"), sync_version)
        await talk.tell("a zombie leaves", "two", leave(group, (old, "i"), ("", "other"), (new, "other")), 5)
        await talk.tell("an id that was made up", "two", join(group, "made-up", instance="j"), version)
        await talk.tell("the leader joins again", "one", join(group, new, instance="i"), version)
        await talk.tell("comes back while it completes", "one", join(group, instance="i"), version)
        await talk.tell("described", "watch", describe(group), 6)
        await talk.tell("is removed", "two", leave(group, ("", "i")), 5)
        await talk.tell("described", "watch", describe(group), 6)


async def commits(talk: Conversation, ids: Ids) -> None:
    ids = {**ids, "none": b"\7" * 16}
    for version in range(2, 11):
        group = f"commits-{version}"
        for what, request in {
            "two and two that are not there": commit(
                group, [(A, 0, 5), (A, 1, 6), (A, 9, 1), ("none", 0, 1)], ids=ids, note="note"
            ),
            "odd numbers": commit(group, [(A, 2, -1), (A, -1, 1)], ids=ids, note=None),
            "too long a note": commit(group, [(A, 2, 1)], ids=ids, note="x" * 4097),
            "a member of a group that has none": commit(group, [(A, 2, 1)], "m", 4, ids=ids),
            "a member of no group": commit("none", [(A, 2, 1)], "m", 4, ids=ids),
            "a member without a generation": commit(group, [(A, 2, 8)], "m", ids=ids),
            "generation -2": commit(group, [(A, 2, 8)], "", -2, ids=ids),
            "generation 0": commit(group, [(A, 2, 8)], "", 0, ids=ids),
            "nothing": commit(group, [], ids=ids),
        }.items():
            await talk.tell(what, "one", request, version)
        if version >= 7:
            request = commit(group, [(A, 2, 8)], instance="i", ids=ids)
            await talk.tell("an instance without a generation", "one", request, version)
        await talk.tell("described", "one", describe(group), 6)
    wanted = {A: [0, 1, 2, 9, -1], "none": [0]}
    for version in range(1, 8):
        for group in ("commits-2", "none"):
            await talk.tell(f"some of {group}", "one", fetch_one(group, wanted), version)
            await talk.tell(f"nothing of {group}", "one", fetch_one(group, {}), version)
            if version >= 2:
                await talk.tell(f"all of {group}", "one", fetch_one(group, None), version)
    for version in range(8, 11):
        groups = [of_group(group, what, ids=ids) for group in ("commits-10", "none") for what in (wanted, {}, None)]
        await talk.tell("many groups", "one", fetch(*groups), version)
        await talk.tell("stable ones", "one", fetch(*groups, stable=True), version)


async def deletions(talk: Conversation, ids: Ids) -> None:
    group = "commits-2"
    await talk.tell("some", "one", delete_offsets(group, {A: [0, 9, 2], "none": [0]}), 0)
    await talk.tell("twice", "one", delete_offsets(group, {A: [0, 0]}), 0)
    await talk.tell("nothing", "one", delete_offsets(group, {}), 0)
    for nobody in ("none", ""):
        await talk.tell(f"of {nobody!r}", "one", delete_offsets(nobody, {A: [0]}), 0)
    await talk.tell("what is left", "one", fetch_one(group, None), 7)
    answer = await talk.tell("somebody joins", "one", join(group), 3)
    me, at = answer.member_id, answer.generation_id
    await talk.tell("syncs", "one", sync(group, me, at, {me: b""}), 3)
    await talk.tell("a stranger commits", "one", commit(group, [(A, 0, 1)], ids=ids), 10)
    await talk.tell("the member commits", "one", commit(group, [(A, 0, 1)], me, at, ids=ids), 8)
    await talk.tell("of a topic that it reads, and another", "one", delete_offsets(group, {A: [0], B: [0]}), 0)
    await talk.tell("leaves", "one", leave_alone(group, me), 0)
    await talk.tell("groups", "one", delete(*(f"commits-{version}" for version in range(2, 11)), "none"), 2)
    await talk.tell("what is left", "one", fetch_one(group, None), 7)
    await talk.tell("another kind joins", "one", join("connect", kind="connect", protocols={"p": b"x"}), 3)
    await talk.tell("of another kind", "one", delete_offsets("connect", {A: [0]}), 0)


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
async def test_members_hear_the_same_as_from_apache_kafka(broker: BrokerProcess, apache_kafka: ApacheKafka) -> None:
    parts = (every_version, mistakes, a_rebalance, static_members, commits, deletions)
    ours, theirs = [await heard_by(one.bootstrap, begin, *parts) for one in (broker, apache_kafka)]
    assert ours == theirs
