"""Clients that are kept from one task to the next."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm.spark.kept import Kept


class Client:
    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_the_next_task_with_the_same_configuration_gets_the_same_client() -> None:
    kept = Kept(Client)
    with kept.lend({"a": "1", "b": "2"}) as first:
        pass
    with kept.lend({"b": "2", "a": "1"}) as second, kept.lend({"a": "2"}) as other:
        assert second is first
        assert other.config == {"a": "2"}
    assert not first.is_closed


def test_a_client_is_lent_to_one_at_a_time_and_one_is_kept() -> None:
    kept = Kept(Client)
    with kept.lend({}) as first, kept.lend({}) as second:
        assert second is not first
    assert (first.is_closed, second.is_closed) == (False, True)


def test_a_client_with_which_something_went_wrong_is_closed() -> None:
    kept = Kept(Client)
    with pytest.raises(RuntimeError), kept.lend({}) as broken:
        raise RuntimeError
    assert broken.is_closed
    with kept.lend({}) as fresh:
        assert fresh is not broken


def test_those_that_were_not_used_for_the_longest_time_are_closed() -> None:
    kept = Kept(Client, limit=2)
    clients = []
    for name in ("a", "b", "a", "c"):
        with kept.lend({"name": name}) as client:
            clients.append(client)
    assert [client.is_closed for client in clients] == [False, True, False, False]


def test_clients_of_a_parent_process_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(Client)
    with kept.lend({}) as parents:
        pass
    monkeypatch.setattr("os.getpid", lambda: -1)
    with kept.lend({}) as own:
        assert own is not parents
    assert not parents.is_closed  # it has the parent's connections
