"""What a task does while nothing comes, without brokers."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.core.ids import TopicPartition
from klamm.spark.errors import NothingCame
from klamm.spark.offsets import Range
from klamm.spark.options import SourceOptions
from klamm.spark.reading import _from

A0 = TopicPartition("a", 0)
OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "a", "kafkaConsumer.pollTimeoutMs": "1500"}


class Consumer:
    """Gets on by gaps only: to each of these offsets, one after the other."""

    def __init__(self, *positions: int) -> None:
        self.positions = list(positions)

    def arrow(self, **_: object) -> list[Any]:
        return []

    def position(self, _: TopicPartition) -> int:
        return self.positions.pop(0)

    def partitions_for(self, _: str) -> list[int]:
        return [0]


def read(*positions: int) -> list[Any]:
    options = SourceOptions.parse(OPTIONS, streaming=False)
    return list(_from(Consumer(*positions), Range(A0, 0, 9), options))  # type: ignore[arg-type]


def test_a_task_is_patient_as_long_as_it_gets_on() -> None:
    assert read(0, 3, 3, 5, 5, 7, 8, 9) == []


def test_it_gives_up_when_it_has_not_for_as_long_as_it_was_told() -> None:
    with pytest.raises(NothingCame, match="a-0 gives no records from offset 3 on, and there should be some up to 9"):
        read(0, 3, 3, 3, 9)
