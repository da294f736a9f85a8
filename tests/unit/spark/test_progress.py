"""Progress as offsets of groups, without Spark: what is committed where, and what happens if it cannot be."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace as Some
from typing import Any

import pytest

pytest.importorskip("pyspark")

from klamm import Admin
from klamm.client.errors import ClientError
from klamm.core.ids import TopicPartition
from klamm.spark.progress import Commits, Group, Progress, groups_of, positions
from klamm.testing import Broker

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Leaf:
    """As much of a leaf of Spark's plans as is asked for."""

    def __init__(self, name: str, options: dict[str, str] | None = None, *, kind: str = "StreamingRelationV2") -> None:
        self.name, self.options, self.kind = name, options, kind

    def isStreaming(self) -> bool:  # noqa: N802
        return self.kind != "LogicalRelation"

    def equals(self, other: Leaf) -> bool:
        return self.__dict__ == other.__dict__

    def getClass(self) -> Any:  # noqa: N802
        return type("Class", (), {"getSimpleName": lambda _: self.kind})()

    def sourceName(self) -> str:  # noqa: N802
        return self.name

    def extraOptions(self) -> Any:  # noqa: N802
        return type("Options", (), {"asCaseSensitiveMap": lambda _: self.options})()


def test_groups_have_the_name_of_the_option_or_of_the_query() -> None:
    leaves = [
        Leaf("rate", kind="StreamingRelation"),
        Leaf("klamm", SERVERS),
        Leaf("klamm", SERVERS),
        Leaf("", kind="LogicalRelation"),
        Leaf("", kind="CTERelationRef"),
        Leaf("kafka", SERVERS),
        Leaf("klamm", SERVERS | {"groupIdPrefix": "mine"}),
        Leaf("klamm", SERVERS | {"groupIdPrefix": "mine", "kafka.group.id": "shown"}),
    ]
    names = [group and group.name for group in groups_of(leaves, "q")]
    assert names == [None, "spark-klamm-source-q", None, "mine-q", "shown"]


def test_of_two_sources_for_one_group_the_one_that_is_behind_counts() -> None:
    group, other = Group.of(SERVERS, "q"), Group.of(SERVERS, "r")
    ends = ['{"a": {"0": 7, "1": 3}, "@ids": {"a": "x"}}', '{"a": {"0": 5}}', None, '"rate"', '{"a": {"1": 1}}']
    assert positions([group, group, group, None, other], ends) == {group: {A0: 5, A1: 3}, other: {A1: 1}}


def test_what_cannot_be_committed_is_logged_once_and_what_comes_then_is_committed(
    klamm_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    klamm_broker.create_topic("a", 2)
    group = Group.of(SERVERS | {"kafka.bootstrap.servers": klamm_broker.bootstrap}, "q")
    with Admin(bootstrap_servers=klamm_broker.bootstrap) as admin:
        admin.alter_group_offsets(group.name, {A0: 0}).check()  # so that the coordinator is there
        klamm_broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=2)
        commits = Commits()
        with caplog.at_level(logging.WARNING, "klamm.spark"):
            for offset in (1, 2):
                commits.put({group: {A0: offset}})
                while klamm_broker.faults_left("OffsetCommit") > 2 - offset:
                    pass
            commits.put({group: {A0: 3, A1: 9}})
            commits.close()
        assert {place: found.offset for place, found in admin.list_group_offsets(group.name).items()} == {A0: 3, A1: 9}
    assert len(caplog.messages) == 1
    assert f"cannot be shown as group {group.name}" in caplog.messages[0]


def test_what_is_to_be_committed_is_committed_before_the_program_ends(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("a")
    program = """
import sys
from klamm.spark.progress import Commits, Group
group = Group.of({"kafka.bootstrap.servers": sys.argv[1], "subscribe": "a"}, "q")
commits = Commits()
commits.put({group: {("a", 0): 3}})
while not commits._admins:
    pass
commits.put({group: {("a", 0): 4}})
"""
    done = subprocess.run(
        [sys.executable, "-c", program, klamm_broker.bootstrap], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    with Admin(bootstrap_servers=klamm_broker.bootstrap) as admin:
        assert admin.list_group_offsets("spark-klamm-source-q")[A0].offset == 4


def test_offsets_that_are_out_of_date_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    group, seen = Group.of(SERVERS, "q"), []
    commits = Commits()

    def commit(_: Commits, to: Group, offsets: dict[TopicPartition, int]) -> None:
        seen.append(offsets[A0])
        for offset in range(1, 50):
            commits.put({to: {A0: offset}})  # while the first one is under way
        if len(seen) > 1:
            commits.close = lambda: None  # type: ignore[method-assign]
            commits._is_closing = True
            commits._waiting.clear()

    monkeypatch.setattr(Commits, "_commit", commit)
    commits.put({group: {A0: 0}})
    assert commits._thread is not None
    commits._thread.join()
    assert seen == [0, 49]


class FakeAdmin:
    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.failures = 0
        self.is_closed = False

    def alter_group_offsets(self, _: str, offsets: dict[TopicPartition, int]) -> FakeAdmin:
        self.asked.append(offsets)
        return self

    def check(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ClientError("no")

    def close(self) -> None:
        self.is_closed = True


def test_the_same_offsets_are_committed_once_unless_that_has_failed_and_at_rest_there_is_no_connection() -> None:
    group, admin, commits = Group.of(SERVERS, "q"), FakeAdmin(), Commits()
    commits._admins[group.client] = admin  # type: ignore[assignment]
    admin.failures = 1
    commits._waiting = {group: {A0: 1}}
    follow: list[Any] = [{group: {A0: 1}}, {group: {A0: 1}}, {group: {A0: 2}}]
    next_ = commits._next

    def after_each() -> Any:
        if admin.asked and follow:
            return follow.pop(0)
        if admin.asked and not admin.is_closed:
            commits.rest()
        elif admin.is_closed:
            commits._is_closing = True
        return next_()

    commits._next = after_each  # type: ignore[method-assign]
    commits._run()
    assert admin.asked == [{A0: 1}, {A0: 1}, {A0: 2}]
    assert commits._admins == {}


def test_what_spark_reports_is_committed_and_connections_rest_with_the_last_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group, told = Group.of(SERVERS, "q"), []
    listener: Any = Progress(None)  # type: ignore[arg-type]
    listener._commits = Some(put=told.append, rest=lambda: told.append("rest"))
    listener._groups = {"r1": [group], "r2": [None, group], "others": [None]}

    def progressed(run: str, *ends: str) -> None:
        listener.onQueryProgress(Some(progress=Some(runId=run, sources=[Some(endOffset=end) for end in ends])))

    with caplog.at_level(logging.WARNING, "klamm.spark"):
        progressed("r1", '{"a": {"0": 3}}')
        progressed("r2", '"rate"', '{"a": {"1": 4}}')
        progressed("others", "1")
        progressed("unknown", '{"a": {"0": 9}}')
        assert caplog.messages == []
        progressed("r2", '{"a": {"1": 9}}')  # whose this is cannot be known
    assert "its plan has 2 sources, and 1 are reported" in caplog.text
    assert told == [{group: {A0: 3}}, {group: {A1: 4}}]
    listener.onQueryTerminated(Some(runId="r1"))
    progressed("r1", '{"a": {"0": 9}}')
    assert len(told) == 2
    listener.onQueryTerminated(Some(runId="r2"))
    assert told[2:] == ["rest"]


def test_a_query_never_hears_of_what_goes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise ClientError("no such thing")

    with caplog.at_level(logging.WARNING, "klamm.spark"):
        Progress(None)._quietly(broken)  # type: ignore[arg-type]
    assert "no such thing" in caplog.text
