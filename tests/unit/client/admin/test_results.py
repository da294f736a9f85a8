from __future__ import annotations

import pytest

from klamm.client.admin.results import Results, failure
from klamm.client.errors import BrokerSaid, ClientError
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

REFUSED = BrokerSaid(ErrorCode.TOPIC_ALREADY_EXISTS, "b")


def test_a_result_is_a_mapping_of_what_worked() -> None:
    done: Results[str, int] = Results.of(["a", "b"], {"a": 1, "b": REFUSED})
    assert dict(done) == {"a": 1}
    assert done.errors == {"b": REFUSED}
    assert "a" in done and "b" not in done
    assert done["a"] == 1


def test_asking_for_what_did_not_work_raises_its_error() -> None:
    done: Results[str, int] = Results.of(["b"], {"b": REFUSED})
    with pytest.raises(BrokerSaid) as caught:
        done["b"]
    assert caught.value is REFUSED
    with pytest.raises(KeyError):
        done["never asked for"]
    assert done.get("b") is None
    assert done.get("b", 7) == 7


def test_a_check_raises_the_first_error_and_notes_the_others() -> None:
    other = BrokerSaid(ErrorCode.INVALID_CONFIG, "c")
    with pytest.raises(BrokerSaid) as caught:
        Results.of(
            ["a", "b", "c"], {"a": None, "b": BrokerSaid(ErrorCode.TOPIC_ALREADY_EXISTS, "b"), "c": other}
        ).check()
    assert caught.value.about == "b"
    assert caught.value.__notes__ == [other.text]
    worked: Results[str, int] = Results({"a": 1})
    assert worked.check() is worked


def test_what_an_answer_says_nothing_of_has_failed() -> None:
    done: Results[str, None] = Results.of(["a", "b"], {"a": None})
    assert list(done) == ["a"]
    assert isinstance(done.errors["b"], ClientError)


def test_an_error_about_a_partition_names_it() -> None:
    error = failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, TopicPartition("t", 3))
    assert error is not None
    assert (error.topic, error.partition, error.retriable) == ("t", 3, True)
    assert failure(0, "t") is None
