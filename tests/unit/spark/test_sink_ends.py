"""What became of a task's transaction, and what is said of it, without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from klamm import Admin
from klamm.admin import CommittedOffset
from klamm.client.admin.results import Results
from klamm.client.admin.transactions import TransactionDescription
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.prepared import PreparedTransaction
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.spark.sink.decisions import TOPIC, Names
from klamm.spark.sink.ends import Fate, commit_all, describe, fate, open_ones
from klamm.spark.sink.task import decided_batch, pointer

ONE, OTHER, THIRD = (PreparedTransaction(name, 7, 3) for name in "abc")
UNKNOWN = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def now(state: str, producer_id: int = 7, epoch: int = 3, name: str = "a") -> TransactionDescription:
    return TransactionDescription(name, state, 0, producer_id, epoch, 60_000, None, ())


def test_the_state_of_an_id_tells_what_became_of_its_transaction() -> None:
    assert fate(ONE, None) is Fate.UNKNOWN
    assert fate(ONE, now("Ongoing")) is Fate.OPEN
    for state in ("PrepareCommit", "CompleteCommit"):
        assert fate(ONE, now(state)) is fate(ONE, now(state, epoch=4)) is Fate.COMMITTED
    for state in ("PrepareAbort", "CompleteAbort"):
        assert fate(ONE, now(state)) is fate(ONE, now(state, epoch=4)) is fate(ONE, now(state, 8, 0)) is Fate.ABORTED


def test_an_id_that_is_used_again_had_its_transaction_committed() -> None:
    assert fate(ONE, now("Ongoing", epoch=4)) is Fate.COMMITTED
    assert fate(ONE, now("CompleteAbort", epoch=5)) is Fate.COMMITTED  # which was the next one
    assert fate(ONE, now("Ongoing", 8, 0)) is Fate.COMMITTED


class Knows(Admin):
    """An admin without brokers: how ends are answered, and what the states are."""

    def __init__(self, *states: TransactionDescription, **ends: ErrorCode) -> None:
        self.states = {one.transactional_id: one for one in states}
        self.ends = ends

    def list_transactions(self, **_: object) -> list[TransactionDescription]:  # type: ignore
        return list(self.states.values())

    def end_transactions(self, all_: Iterable[PreparedTransaction], *, committed: bool) -> Results:  # type: ignore
        assert committed
        ids = {one: self.ends.get(one.transactional_id) for one in all_}
        return Results.of(list(ids), {one: code and BrokerSaid(code, "it") for one, code in ids.items()})

    def describe_transactions(self, ids: Sequence[str]) -> Results:  # type: ignore
        told = {name: self.states.get(name) or BrokerSaid(self.ends.get(f"_{name}", UNKNOWN), "it") for name in ids}
        return Results.of(list(ids), told)


def test_what_brokers_have_forgotten_is_left_out_and_what_they_do_not_say_is_an_error() -> None:
    assert describe(Knows(now("Ongoing")), ["a", "b"]) == {"a": now("Ongoing")}
    with pytest.raises(BrokerSaid, match="COORDINATOR_NOT_AVAILABLE"):
        describe(Knows(now("Ongoing"), _b=ErrorCode.COORDINATOR_NOT_AVAILABLE), ["a", "b"])


def test_what_has_ended_since_it_was_listed_is_not_open() -> None:
    names = Names("query:q")
    mine, ended = names.transaction("w", 0, "r1"), names.transaction("w", 1)
    of_another = Names("query:q2").transaction("w", 0)
    admin = Knows(*(now("Ongoing", name=name) for name in (mine, of_another)), now("CompleteCommit", name=ended))
    assert open_ones(admin, names) == [PreparedTransaction(mine, 7, 3)]


def test_an_end_that_was_refused_is_lost_unless_it_was_committed_before() -> None:
    refused = ErrorCode.INVALID_PRODUCER_EPOCH
    states = now("CompleteCommit", epoch=4), now("CompleteAbort", epoch=4, name="b")
    admin = Knows(*states, a=refused, b=refused, c=refused)
    assert commit_all(admin, [ONE, OTHER, THIRD]) == [OTHER, THIRD]
    assert commit_all(Knows(), [ONE, OTHER]) == []


def test_an_end_that_may_succeed_later_is_an_error_and_no_loss() -> None:
    with pytest.raises(ClientError, match="NOT_COORDINATOR"):
        commit_all(Knows(b=ErrorCode.NOT_COORDINATOR), [ONE, OTHER])


def test_the_last_decision_is_that_of_the_latest_batch_whatever_its_partition() -> None:
    """The topic may have been given more of them since."""

    class Group(Knows):
        def list_group_offsets(self, *_: object, **__: object) -> Results:  # type: ignore
            offsets = {(TOPIC, 1): (9, "4"), (TOPIC, 3): (2, "11"), (TOPIC, 5): (7, "3"), ("other", 0): (1, "")}
            return Results(
                {
                    TopicPartition(*at): CommittedOffset(offset, metadata=batch)
                    for at, (offset, batch) in offsets.items()
                }
            )

    names = Names("query:q")
    assert pointer(Group(), names, require_stable=False) == (TopicPartition(TOPIC, 3), 2, 11)
    assert decided_batch(Group(), names, require_stable=False) == 11
