from __future__ import annotations

import asyncio

import pytest
from controller_setup import Broker

from klamm.controller import NewTopic, ProducerIdBlock, TopicToDelete
from klamm.controller.topics import TOPICS_PER_SLICE
from klamm.core.errors import ErrorCode
from klamm.testing.sim.faults import SYNC, WRITE
from klamm.testing.sim.world import World


def simulate(scenario, seed=0):
    with World(seed) as world:
        node = world.node("broker")
        return world.run(node.run(scenario(node.env, node.machine.disk)))


def test_a_created_topic_is_in_the_image_when_the_answer_comes():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        assert broker.image.controller_id == 1
        assert broker.image.brokers[1].epoch == broker.epoch
        (result,) = await broker.controller.create_topics([NewTopic("a", 3)])
        assert broker.image.topics["a"].id == result.topic_id
        (deleted,) = await broker.controller.delete_topics([TopicToDelete("a")])
        assert deleted.error is ErrorCode.NONE and not broker.image.topics
        await broker.stop()

    simulate(scenario)


def test_commands_are_decided_on_what_their_predecessors_will_leave():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        create, delete = broker.controller.create_topics, broker.controller.delete_topics
        results = await asyncio.gather(
            create([NewTopic("a")]),
            create([NewTopic("a")]),
            delete([TopicToDelete("a")]),
            create([NewTopic("a")]),
            create([NewTopic("b")], True),
        )
        assert [r[0].error for r in results] == [
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        assert set(broker.image.topics) == {"a"}
        assert broker.image.topics["a"].id == results[3][0].topic_id
        await broker.stop()

    simulate(scenario)


def test_an_answer_that_writes_nothing_still_waits_for_what_it_says():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        disk.faults.fail(SYNC)
        first = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        second = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        assert (await first)[0].error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await second)[0].error == ErrorCode.KAFKA_STORAGE_ERROR  # and not "exists"
        await broker.stop()

    simulate(scenario)


def test_when_the_store_is_broken_every_command_says_so():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        disk.faults.fail(SYNC)
        await broker.controller.create_topics([NewTopic("a")])
        code = ErrorCode.KAFKA_STORAGE_ERROR
        assert [r.error for r in await broker.controller.create_topics([NewTopic("b"), NewTopic("c")])] == [code] * 2
        assert [r.error for r in await broker.controller.delete_topics([TopicToDelete("a")])] == [code]
        assert await broker.controller.allocate_producer_ids(1) == ProducerIdBlock(code)
        await broker.stop()

    simulate(scenario)


def test_a_full_disk_fails_one_command_and_not_the_next():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        disk.faults.fail(WRITE)
        (failed,) = await broker.controller.create_topics([NewTopic("a")])
        assert failed.error == ErrorCode.KAFKA_STORAGE_ERROR and failed.message
        assert "a" not in broker.image.topics
        (created,) = await broker.controller.create_topics([NewTopic("a")])
        assert created.error is ErrorCode.NONE
        await broker.stop()

    simulate(scenario)


def test_a_caller_that_goes_away_takes_nobody_else_with_it():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        tasks = [asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")])) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        assert (await tasks[2])[0].error == ErrorCode.TOPIC_ALREADY_EXISTS
        assert "a" in broker.image.topics
        await broker.stop()

    simulate(scenario)


def test_a_node_that_is_not_the_controller_refuses():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        await broker.stop()
        (result,) = await broker.controller.create_topics([NewTopic("a")])
        assert result.error == ErrorCode.NOT_CONTROLLER

    simulate(scenario)


def test_producer_ids_never_come_twice_also_over_restarts():
    async def scenario(env, disk):
        firsts = []
        for _ in range(3):
            broker = await Broker(env).start()
            blocks = await asyncio.gather(*(broker.controller.allocate_producer_ids(1) for _ in range(3)))
            firsts += [block.first for block in blocks]
            await broker.stop()
        assert firsts == [i * 1000 for i in range(9)]

    simulate(scenario)


def test_snapshots_are_taken_as_the_log_grows():
    async def scenario(env, disk):
        broker = await Broker(env, snapshot_entries=10).start()
        for i in range(100):
            await broker.controller.create_topics([NewTopic(f"t{i}")])
        await broker.stop()
        names = env.files.list("data/metadata")
        assert sum(name.endswith(".snapshot") for name in names) == 1
        assert len(names) <= 3
        again = await Broker(env).start()
        assert again.image.topics == broker.image.topics
        await again.stop()

    simulate(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_everything_and_counts_a_new_broker_epoch(clean):
    async def scenario(env, disk):
        broker = await Broker(env).start()
        await broker.controller.create_topics([NewTopic("a", 2, configs=[("retention.ms", "5")])])
        await broker.stop()
        again = await Broker(env).start(clean=clean)
        assert again.epoch > broker.epoch
        assert again.image.epoch > broker.image.epoch
        assert again.image.topic_configs("a") == {"retention.ms": "5"}
        assert [p.leader_epoch for p in again.image.topics["a"].partitions] == [0 if clean else 1] * 2
        await again.stop()

    simulate(scenario)


MANY = [NewTopic(f"t{i}") for i in range(3 * TOPICS_PER_SLICE)]


def test_a_large_request_leaves_the_loop_its_turns_and_is_one_entry_all_the_same():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        seen = []
        broker.publisher.subscribe(lambda image, delta: seen.append(len(image.topics)))
        creating = asyncio.ensure_future(broker.controller.create_topics(MANY))
        turns = 0
        while len(broker.controller._head.topics) == 0:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 2
        assert all(not result.error for result in await creating)
        assert seen == [0, len(MANY)]
        await broker.stop()
        again = await Broker(env).start()
        assert len(again.image.topics) == len(MANY)
        await again.stop()

    simulate(scenario)


def test_a_command_waits_for_a_large_one_before_it():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        create, delete = broker.controller.create_topics, broker.controller.delete_topics
        last = MANY[-1].name
        _, second, deleted = await asyncio.gather(create(MANY), create([NewTopic(last)]), delete([TopicToDelete(last)]))
        assert second[0].error == ErrorCode.TOPIC_ALREADY_EXISTS and not deleted[0].error
        assert len(broker.image.topics) == len(MANY) - 1
        await broker.stop()

    simulate(scenario)


def test_a_large_request_that_is_given_up_half_way_leaves_nothing():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        creating = asyncio.ensure_future(broker.controller.create_topics(MANY))
        await asyncio.sleep(0)
        creating.cancel()
        (result,) = await broker.controller.create_topics([NewTopic(MANY[0].name)])
        assert not result.error and len(broker.image.topics) == 1
        await broker.stop()

    simulate(scenario)


def test_a_large_request_is_refused_if_the_controller_stops_half_way():
    async def scenario(env, disk):
        broker = await Broker(env).start()
        creating = asyncio.ensure_future(broker.controller.create_topics(MANY))
        await asyncio.sleep(0)
        await broker.controller.close()
        assert {result.error for result in await creating} == {ErrorCode.NOT_CONTROLLER}
        assert not broker.image.topics
        await broker.stop()

    simulate(scenario)
