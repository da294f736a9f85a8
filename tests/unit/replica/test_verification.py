from __future__ import annotations

import pytest

from klamm.replica.verification import MAX_VERIFICATIONS, Verifications


def test_batches_of_one_epoch_share_a_verification_and_the_lowest_sequence_comes_first() -> None:
    known = Verifications()
    one = known.begin(1, 0, 5, False)
    assert known.begin(1, 0, 3, False) is one and one.lowest_sequence == 3
    assert known.begin(1, 0, 9, False) is one and one.lowest_sequence == 3


def test_every_epoch_is_verified_on_its_own_whoever_comes_first() -> None:
    """A stranger could keep a producer from writing otherwise, by a batch with its id and a large epoch."""
    known = Verifications()
    wrong = known.begin(1, 7, 0, False)
    right = known.begin(1, 0, 5, True)
    assert right is not wrong and (right.epoch, right.adds, right.lowest_sequence) == (0, True, 5)
    assert known.get(1, 0) is right and known.get(1, 7) is wrong and known.get(1, 1) is None


def test_a_batch_in_the_log_makes_a_verification_unnecessary() -> None:
    known = Verifications()
    known.begin(1, 0, 0, False)
    known.begin(1, 1, 0, False)
    known.appended(1, 0)
    assert known.get(1, 0) is None and known.get(1, 1) is not None
    known.appended(1, 0)
    known.ended(1, 0)


@pytest.mark.parametrize(
    ("adds", "marker_epoch", "kept"), [(False, 3, False), (True, 3, True), (False, 4, False), (True, 4, False)]
)
def test_a_marker_ends_it_unless_it_brings_the_epoch_that_is_being_verified(
    adds: bool, marker_epoch: int, kept: bool
) -> None:
    known = Verifications()
    one = known.begin(1, 3, 0, adds)
    known.ended(1, marker_epoch)
    assert (known.get(1, 3) is one) == kept


def test_they_are_bounded() -> None:
    known = Verifications()
    for producer in range(MAX_VERIFICATIONS + 1):
        known.begin(producer, 0, 0, False)
    assert known.get(0, 0) is None and known.get(1, 0) is not None
