"""Controller and local store over kills and power losses at any moment: nothing acknowledged is ever lost."""

from __future__ import annotations

import asyncio

import pytest
from controller_setup import Broker

from klamm.controller import NewTopic, TopicToDelete
from klamm.core.errors import ErrorCode
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.world import World

LIVES = 6
NAMES = 12


class Model:
    """What has been acknowledged. A topic with a command under way at the crash may be there or not."""

    def __init__(self):
        self.topics = {}  # name -> id of topics that must be there
        self.doubtful = set()
        self.producer_ids = 0
        self.offset = -1

    def check(self, image):
        assert image.offset >= self.offset
        assert image.next_producer_id >= self.producer_ids
        for i in range(NAMES):
            name = f"t{i}"
            topic = image.topics.get(name)
            if name not in self.doubtful:
                assert (topic and topic.id) == self.topics.get(name), name
        self.topics = {name: topic.id for name, topic in image.topics.items()}
        self.doubtful.clear()


async def worker(broker, model, rng, names):
    """Creates and deletes its own topics until the process dies."""
    while True:
        name = rng.choice(names)
        model.doubtful.add(name)
        if name in model.topics:
            (result,) = await broker.controller.delete_topics([TopicToDelete(name)])
            if result.error is ErrorCode.NONE:
                del model.topics[name]
        else:
            new = NewTopic(name, rng.randint(1, 3), configs=[("retention.ms", "9")] * rng.randint(0, 1))
            (result,) = await broker.controller.create_topics([new])
            if result.error is ErrorCode.NONE:
                model.topics[name] = result.topic_id
        assert result.error is ErrorCode.NONE, result
        model.doubtful.discard(name)
        if rng.random() < 0.2:
            block = await broker.controller.allocate_producer_ids(1)
            assert block.first >= model.producer_ids, "an id was given twice"
            model.producer_ids = block.first + block.size


async def live(node, model, rng):
    broker = await Broker(node.env, snapshot_entries=rng.choice([3, 10, 1000])).start(clean=False)
    model.check(broker.image)

    def note(image, delta):
        assert image.offset >= model.offset
        model.offset = image.offset

    broker.publisher.subscribe(note)
    slices = [[f"t{i}" for i in range(first, NAMES, 3)] for first in range(3)]
    await asyncio.gather(*(worker(broker, model, rng, names) for names in slices))


async def scenario(world):
    model, rng = Model(), world.random("scenario")
    for _ in range(LIVES):
        node = world.node("broker")
        end = world.kill if rng.random() < 0.4 else world.power_loss
        if rng.random() < 0.7:
            node.machine.disk.faults.crash(rng.randint(1, 120), lambda node=node, end=end: end(node))
        else:
            world.loop.call_later(rng.random() * 0.5, end, node)
        with pytest.raises(Killed):
            await node.run(live(node, model, rng))
    node = world.node("broker")

    async def last():
        broker = await Broker(node.env).start(clean=False)
        model.check(broker.image)
        await broker.stop()

    await node.run(last())


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_nothing_acknowledged_is_lost_over_crashes_at_any_moment(first):
    for seed in range(first, first + 10):
        with World(seed) as world:
            try:
                world.run(scenario(world))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


def test_the_check_would_notice_a_disk_that_lies_about_syncs():
    async def lying(world):
        world.machine("broker").disk.faults.lying_sync = True
        await scenario(world)

    noticed = 0
    for seed in range(10):
        with World(seed) as world:
            try:
                world.run(lying(world))
            except Exception:
                noticed += 1
    assert noticed > 5
