"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def some(**topics: list[int]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=t, partitions=p) for t, p in topics.items()])


EVERYTHING = DescribeLogDirsRequest(topics=None)


async def sizes(node: Any, request: DescribeLogDirsRequest, version: int = 5) -> dict[tuple[str, int], int]:
    response = await node.call(request, version)
    assert response.error_code == ErrorCode.NONE
    (folder,) = response.results
    assert folder.log_dir == str(node.path)
    return {(t.name, p.partition_index): p.partition_size for t in folder.topics for p in t.partitions}


@pytest.mark.parametrize("version", range(1, 6))
async def test_all_partitions_with_the_size_of_their_batches(node: Any, version: int) -> None:
    await node.create("a", 2)
    await node.create("b")
    node.append(b"x", topic="a", index=1)
    file = node.path / "topics" / "a-1" / f"{0:020}.log"
    assert await sizes(node, EVERYTHING, version) == {("a", 0): 0, ("a", 1): file.stat().st_size, ("b", 0): 0}
    (folder,) = (await node.call(EVERYTHING, version)).results
    if version >= 4:
        assert folder.total_bytes > folder.usable_bytes > 0
    assert not any(p.is_future_key or p.offset_lag for t in folder.topics for p in t.partitions)


async def test_only_what_is_asked_for_and_there(node: Any) -> None:
    await node.create("a", 2)
    await node.create("b")
    assert set(await sizes(node, some(a=[1, 1, 7], c=[0]))) == {("a", 1)}
    assert await sizes(node, some()) == {}


async def test_partitions_that_nobody_has_used_since_the_start_are_measured_too(node: Any) -> None:
    await node.create("a", 2)
    folder = node.path / "topics" / "a-1"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"12345")
    (folder / f"{0:020}.index").write_bytes(b"123")
    assert await sizes(node, EVERYTHING) == {("a", 0): 0, ("a", 1): 5}


async def test_a_disk_that_cannot_be_looked_at_is_said_of_the_folder(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, path: str) -> int:
        raise OSError(5, "broken")

    monkeypatch.setattr(type(node.env.files), "total_bytes", broken)
    (folder,) = (await node.call(EVERYTHING, 5)).results
    assert (folder.error_code, folder.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, str(node.path))


async def test_who_may_not_describe_the_cluster(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(EVERYTHING, 3)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert (await node.call(EVERYTHING, 2)).results == []


def move(path: str, **topics: list[int]) -> AlterReplicaLogDir:
    wanted = [AlterReplicaLogDirTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return AlterReplicaLogDir(path=path, topics=wanted)


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {(t.topic_name, p.partition_index): p.error_code for t in response.results for p in t.partitions}


@pytest.mark.parametrize("version", [1, 2])
async def test_a_replica_can_stay_where_it_is_and_go_nowhere_else(node: Any, version: int) -> None:
    await node.create("a", 2)
    request = AlterReplicaLogDirsRequest(dirs=[move(f"{node.path}/", a=[0, 9], b=[0]), move("/nowhere", a=[1])])
    response = await node.call(request, version)
    assert codes(response) == {
        ("a", 0): ErrorCode.NONE,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 1): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    assert [topic.topic_name for topic in response.results] == ["a", "b"]


async def test_a_replica_whose_log_has_failed_cannot_be_moved(node: Any) -> None:
    await node.create("a")
    node.append(b"x", topic="a")
    node.partition("a").log._fail("broken")
    response = await node.call(AlterReplicaLogDirsRequest(dirs=[move(str(node.path), a=[0])]), 2)
    assert codes(response) == {("a", 0): ErrorCode.KAFKA_STORAGE_ERROR}


async def test_who_may_not_alter_the_cluster(node: Any, tools: Any) -> None:
    await node.create("a")
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(AlterReplicaLogDirsRequest(dirs=[move(str(node.path), a=[0])]), 2)
    assert codes(response) == {("a", 0): ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
