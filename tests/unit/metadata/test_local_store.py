from __future__ import annotations

import asyncio
import errno

import pytest

from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.metadata.local import LocalStore
from klamm.metadata.publisher import Publisher
from klamm.metadata.records import FeatureRecord
from klamm.metadata.store import Entry, Fenced, StoreError
from klamm.testing.sim.faults import SYNC, WRITE
from klamm.testing.sim.world import World


class Node:
    """A store with its publisher, elected."""

    def __init__(self, env, **options):
        self.env = env
        self.store = LocalStore(env, "data/metadata", **options)

    async def start(self):
        self.env.files.make_dirs("data")
        self.publisher = Publisher(await self.store.load())
        self.store.follow(self.publisher.replay, self.publisher.reset)
        self.epoch = await self.store.elect(1)
        self.next = self.publisher.image.offset + 1
        return self

    def append(self, name="f", level=1, records=1):
        entry = Entry(self.next, self.epoch, tuple(FeatureRecord(name=name, level=level) for _ in range(records)))
        future = self.store.append(entry)
        self.next += records
        return future

    async def stop(self):
        await self.store.close()
        return self.publisher.image


def simulate(scenario, seed=0):
    with World(seed) as world:
        node = world.node("broker")
        return world.run(node.run(scenario(node.env, node.machine.disk)))


def test_an_entry_counts_only_after_its_sync():
    async def scenario(env, disk):
        node = await Node(env).start()
        future = node.append()
        assert node.publisher.image.offset == -1 and not future.done()
        await future
        assert node.publisher.image.features == {"f": 1}
        await node.stop()

    simulate(scenario)


def test_entries_that_wait_share_a_sync():
    syncs = []

    async def scenario(env, disk):
        node = await Node(env).start()
        disk._observe = lambda operation, path, data: syncs.append(path) if operation == "sync" else None
        first = node.append()
        await asyncio.sleep(0)  # its sync is under way
        futures = [node.append(level=level) for level in range(2, 50)]
        await asyncio.gather(first, *futures)
        assert node.publisher.image.offset == 48
        await node.stop()

    simulate(scenario)
    assert len(syncs) == 2


def test_a_restart_finds_what_was_acknowledged_under_a_new_epoch():
    async def scenario(env, disk):
        node = await Node(env).start()
        await node.append("a", records=3)
        await node.append("b")
        before = await node.stop()
        again = await Node(env).start()
        assert again.publisher.image == before
        assert again.epoch == node.epoch + 1
        await again.append("c")
        assert again.publisher.image.epoch == again.epoch
        await again.stop()

    simulate(scenario)


def test_only_the_elected_epoch_may_append():
    async def scenario(env, disk):
        node = await Node(env).start()
        old = node.epoch
        node.epoch = await node.store.elect(1)
        node.epoch = old
        with pytest.raises(Fenced) as caught:
            node.append()
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await node.stop()

    simulate(scenario)


def test_an_entry_that_does_not_follow_the_last_one_is_a_broken_invariant():
    async def scenario(env, disk):
        node = await Node(env).start()
        node.next += 1
        with pytest.raises(AssertionError):
            node.append()
        await node.stop()

    simulate(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_full_disk_refuses_the_entry_and_the_store_goes_on(seed):
    async def scenario(env, disk):
        node = await Node(env).start()
        await node.append("a")
        disk.faults.fail(WRITE, code=errno.ENOSPC)
        with pytest.raises(StoreError) as caught:
            node.append("b")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await node.append("c")
        assert node.publisher.image.features == {"a": 1, "c": 1}
        image = await node.stop()
        again = await Node(env).start()
        assert again.publisher.image == image
        await again.stop()

    simulate(scenario, seed)


def test_when_not_even_the_half_written_entry_can_be_cut_the_store_ends():
    async def scenario(env, disk):
        node = await Node(env).start()
        disk.faults.fail(WRITE, times=2)
        for _ in range(2):
            with pytest.raises(StoreError):
                node.append()
        assert "restart" in node.store.failure
        await node.stop()

    simulate(scenario)


def test_a_failed_sync_ends_the_store_and_all_that_waited_hear_of_it():
    async def scenario(env, disk):
        node = await Node(env).start()
        await node.append("a")
        reasons = []
        node.store.on_failure = reasons.append
        disk.faults.fail(SYNC)
        first = node.append("b")
        await asyncio.sleep(0)
        second = node.append("c")
        for future in (first, second):
            with pytest.raises(StoreError):
                await future
        with pytest.raises(StoreError):
            node.append("d")
        assert node.publisher.image.features == {"a": 1}
        assert not node.store.wants_snapshot
        assert reasons == [node.store.failure]
        await node.stop()

    simulate(scenario)


def test_a_store_that_ends_while_a_sync_is_under_way_leaves_nobody_waiting():
    async def scenario(env, disk):
        node = await Node(env).start()
        reasons = []
        node.store.on_failure = reasons.append
        first = node.append("a")
        await asyncio.sleep(0)
        second = node.append("b")
        disk.faults.fail(WRITE, times=2)
        with pytest.raises(StoreError):
            node.append("c")
        disk.faults.fail(SYNC)
        for future in (first, second):
            with pytest.raises(StoreError):
                await future
        assert len(reasons) == 1
        await node.stop()

    simulate(scenario)


def test_a_subscriber_that_raises_ends_the_store():
    async def scenario(env, disk):
        node = await Node(env).start()
        raised = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))

        def fail(image, delta):
            if image.offset >= 0:
                raise RuntimeError("bug")

        node.publisher.subscribe(fail)
        with pytest.raises(StoreError):
            await node.append()
        assert "bug" in node.store.failure
        await node.stop()

    simulate(scenario)


def test_a_caller_that_gave_up_does_not_stop_the_entry():
    async def scenario(env, disk):
        node = await Node(env).start()
        node.append("a").cancel()
        await node.append("b")
        assert node.publisher.image.features == {"a": 1, "b": 1}
        await node.stop()

    simulate(scenario)


def test_closing_waits_for_what_was_appended():
    async def scenario(env, disk):
        node = await Node(env).start()
        future = node.append("a")
        await node.stop()
        assert future.done() and node.publisher.image.features == {"a": 1}
        with pytest.raises(StoreError):
            node.append("b")

    simulate(scenario)


def test_a_snapshot_takes_the_place_of_the_log_before_it():
    async def scenario(env, disk):
        node = await Node(env, snapshot_entries=10).start()
        for level in range(1, 10):
            await node.append("a", level)
            assert not node.store.wants_snapshot
        await node.append("b")
        assert node.store.wants_snapshot
        await node.store.snapshot(node.publisher.image)
        assert not node.store.wants_snapshot
        names = ["00000000000000000009.snapshot", "00000000000000000010.log"]
        assert env.files.list("data/metadata") == names
        await node.append("c")
        image = await node.stop()
        again = await Node(env).start()
        assert again.publisher.image == image
        assert env.files.list("data/metadata") == names
        await again.stop()

    simulate(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_entries_are_appended_while_a_snapshot_is_made(seed):
    async def scenario(env, disk):
        node = await Node(env).start()
        futures = [node.append("a", level) for level in range(1, 20)]
        await futures[3]
        snapshot = asyncio.ensure_future(node.store.snapshot(node.publisher.image))
        futures += [node.append("b", level) for level in range(1, 20)]
        await asyncio.sleep(0.001)
        futures += [node.append("c", level) for level in range(1, 20)]
        await asyncio.gather(*futures, snapshot)
        await node.store.snapshot(node.publisher.image)
        image = await node.stop()
        assert image.offset == 56
        again = await Node(env).start()
        assert again.publisher.image == image
        assert len(env.files.list("data/metadata")) == 2
        await again.stop()

    simulate(scenario, seed)


def test_a_snapshot_that_fails_leaves_the_log_as_it_was():
    async def scenario(env, disk):
        node = await Node(env, snapshot_entries=2).start()
        await node.append("a")
        await node.append("b")
        disk.faults.fail(WRITE, path="snapshot")
        await node.store.snapshot(node.publisher.image)
        assert not node.store.wants_snapshot
        await node.append("c")
        image = await node.stop()
        again = await Node(env).start()
        assert again.publisher.image == image
        await again.stop()

    simulate(scenario)


async def test_it_works_on_real_files_and_threads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = real_env(seed=1)
    node = await Node(env, snapshot_entries=20).start()
    await asyncio.gather(*(node.append("a", level) for level in range(1, 50)))
    await node.store.snapshot(node.publisher.image)
    await node.append("b")
    image = await node.stop()
    again = await Node(env).start()
    assert again.publisher.image == image
    await again.stop()
    env.executor.close()
