from __future__ import annotations

import pytest

from klamm.replica.verification import MAX_VERIFICATIONS, Verifications


def test_batches_of_one_epoch_share_a_verification_and_the_lowest_sequence_comes_first() -> None:
    known = Verifications()
    one = known.begin(1, 0, 5, False)
    assert known.begin(1, 0, 3, False) is one and one.lowest_sequence == 3
    assert known.begin(1, 0, 9, False) is one and one.lowest_sequence == 3


def test_a_new_epoch_has_to_be_verified_anew_and_an_old_one_changes_nothing() -> None:
    known = Verifications()
    old = known.begin(1, 0, 5, False)
    old.verified = True
    new = known.begin(1, 1, 0, True)
    assert new is not old and not new.verified and new.adds
    assert known.begin(1, 0, 0, False) is new
    assert new.epoch == 1


def test_a_batch_in_the_log_makes_a_verification_unnecessary() -> None:
    known = Verifications()
    known.begin(1, 0, 0, False)
    known.appended(1)
    assert known.get(1) is None
    known.appended(1)
    known.ended(1, 0)


@pytest.mark.parametrize(("adds", "marker_epoch", "kept"), [(False, 3, False), (True, 3, True), (True, 4, False)])
def test_a_marker_ends_it_unless_it_brings_the_epoch_that_is_being_verified(
    adds: bool, marker_epoch: int, kept: bool
) -> None:
    known = Verifications()
    one = known.begin(1, 3, 0, adds)
    known.ended(1, marker_epoch)
    assert (known.get(1) is one) == kept


def test_they_are_bounded() -> None:
    known = Verifications()
    for producer in range(MAX_VERIFICATIONS + 1):
        known.begin(producer, 0, 0, False)
    assert known.get(0) is None and known.get(1) is not None
