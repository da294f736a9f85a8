"""The manager does what the image says: finds, leads, follows configs, lets go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.log.config import LogConfig
from klamm.log.folder import DataFolder
from klamm.log.manager import LogManager
from klamm.log.results import Appended, Rejected
from klamm.metadata.image import EMPTY, TOPIC_RESOURCE, Image
from klamm.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from klamm.metadata.replay import replay
from klamm.records.record import Record, encode_batch
from klamm.replica.manager import ReplicaManager

pytestmark = pytest.mark.usefixtures("quick_disk")

US, THEM = 1, 2
ID = b"i" * 16


class World:
    """A manager on real logs, fed with metadata records."""

    def __init__(self, logs: LogManager) -> None:
        self.logs = logs
        self.image: Image = EMPTY
        self.manager = ReplicaManager(US, logs, Options.from_mapping({}))

    def apply(self, *records: MetadataRecord) -> None:
        self.image, delta = replay(self.image, records, offset=self.image.offset + len(records), epoch=0)
        self.manager.apply(self.image, delta)

    def create(self, name: str = "t", topic_id: bytes = ID, leaders: tuple[int, ...] = (US,)) -> None:
        partitions = [
            PartitionRecord(topic_id=topic_id, partition_id=i, replicas=[US, THEM], isr=[US], leader=leader)
            for i, leader in enumerate(leaders)
        ]
        self.apply(TopicRecord(name=name, topic_id=topic_id), *partitions)

    def elect(self, leader: int, epoch: int) -> None:
        self.apply(
            PartitionChangeRecord(topic_id=ID, partition_id=0, leader=leader, leader_epoch=epoch, partition_epoch=epoch)
        )

    def append(self, topic: str = "t") -> Appended | Rejected:
        partition = self.manager.find(topic, 0)
        assert partition is not None
        now_ms = self.logs.env.clock.time_ms()
        return partition.append(bytearray(encode_batch([Record(0, now_ms, None, b"x")])), 1)


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    env = real_env(seed=1)
    folder = DataFolder.open(env, str(tmp_path / "data"), node_id=US)
    logs = LogManager(env, folder, lambda topic: LogConfig())
    yield World(logs)
    await logs.close(clean=False)
    folder.close()
    env.executor.close()


async def test_a_partition_is_found_by_name_and_by_id(world: World) -> None:
    world.create(leaders=(US, US))
    one = world.manager.find("t", 1)
    assert one is not None and one is world.manager.find_by_id(ID, 1)
    assert (one.topic, one.index, one.error) == ("t", 1, ErrorCode.NONE)
    assert world.manager.name_of(ID) == "t" and world.manager.knows_id(ID)


@pytest.mark.parametrize(("topic", "index"), [("t", 2), ("t", -1), ("other", 0)])
async def test_what_the_image_does_not_have_is_not_found(world: World, topic: str, index: int) -> None:
    world.create(leaders=(US, US))
    assert world.manager.find(topic, index) is None
    assert world.manager.find_by_id(b"x" * 16, 0) is None
    assert list(world.manager.opened()) == []


async def test_a_partition_is_made_when_it_is_first_asked_for(world: World) -> None:
    world.create(leaders=(US,) * 100)
    world.manager.find("t", 7)
    assert [p.index for p in world.manager.opened()] == [7]
    assert len(world.logs.logs()) == 1


async def test_a_partition_that_another_broker_leads_says_who(world: World) -> None:
    world.create(leaders=(THEM,))
    partition = world.manager.find("t", 0)
    assert partition is not None
    assert (partition.error, partition.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, THEM)
    assert world.append() == Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert world.logs.logs() == []


async def test_leadership_goes_and_comes_back_with_the_image(world: World) -> None:
    world.create()
    assert isinstance(world.append(), Appended)
    world.elect(THEM, 1)
    rejected = world.append()
    assert isinstance(rejected, Rejected) and rejected.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.elect(US, 2)
    assert isinstance(world.append(), Appended)
    partition = world.manager.find("t", 0)
    assert partition is not None and partition.log is not None
    assert (partition.leader_epoch, partition.high_watermark) == (2, 2)
    assert partition.log.epochs.entries() == [(0, 0), (2, 1)]


async def test_a_topic_of_the_same_name_starts_anew(world: World) -> None:
    world.create()
    world.append()
    old = world.manager.find("t", 0)
    world.apply(RemoveTopicRecord(topic_id=ID))
    assert old is not None and old.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.manager.find("t", 0) is None and world.manager.find_by_id(ID, 0) is None
    world.create(topic_id=b"j" * 16)
    new = world.manager.find("t", 0)
    assert new is not None and new is not old
    assert new.high_watermark == 0
    result = world.append()
    assert isinstance(result, Appended) and result.base_offset == 0


async def test_removed_and_created_in_one_delta(world: World) -> None:
    world.create()
    world.append()
    partition = PartitionRecord(topic_id=b"j" * 16, partition_id=0, replicas=[US], isr=[US], leader=US)
    world.apply(RemoveTopicRecord(topic_id=ID), TopicRecord(name="t", topic_id=b"j" * 16), partition)
    found = world.manager.find("t", 0)
    assert found is not None and found.topic_id == b"j" * 16 and found.high_watermark == 0


async def test_a_changed_config_reaches_partitions_in_use(world: World) -> None:
    world.create()
    world.append()

    def set_config(name: str, value: str | None) -> None:
        world.apply(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=name, value=value))

    set_config("max.message.bytes", "10")
    rejected = world.append()
    assert isinstance(rejected, Rejected) and rejected.code == ErrorCode.MESSAGE_TOO_LARGE
    set_config("max.message.bytes", None)
    assert isinstance(world.append(), Appended)
    set_config("min.insync.replicas", "2")
    partition = world.manager.find("t", 0)
    assert partition is not None and partition.min_isr == 2
    assert isinstance(world.append(), Appended), "acks=1 does not ask for it"


async def test_the_followers_are_the_other_replicas(world: World) -> None:
    world.create()
    partition = world.manager.find("t", 0)
    assert partition is not None and tuple(partition.followers) == (THEM,)
