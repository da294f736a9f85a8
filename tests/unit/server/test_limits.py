from __future__ import annotations

from klamm.server.limits import ConnectionCount, FrameMemory, Limits


def test_frame_memory_is_granted_until_it_is_used_up_then_in_the_order_of_asking() -> None:
    memory = FrameMemory(100)
    granted: list[str] = []
    assert memory.take(60, lambda: granted.append("a"))
    assert not memory.take(50, lambda: granted.append("b"))
    assert not memory.take(10, lambda: granted.append("c"))  # it would fit, but b was first
    assert memory.is_short
    memory.give_back(60)
    assert granted == ["b", "c"]
    assert memory.used_bytes == 60
    assert not memory.is_short


def test_a_frame_above_the_whole_bound_passes_when_it_is_alone() -> None:
    memory = FrameMemory(100)
    granted: list[str] = []
    assert memory.take(500, lambda: None)
    assert not memory.take(200, lambda: granted.append("next"))
    memory.give_back(500)
    assert granted == ["next"]
    assert memory.used_bytes == 200


def test_who_is_forgotten_does_not_hold_up_those_behind() -> None:
    memory = FrameMemory(100)
    granted: list[str] = []

    def large() -> None:
        granted.append("large")

    memory.take(60, lambda: None)
    memory.take(90, large)
    memory.take(40, lambda: granted.append("small"))
    memory.forget(large)
    assert granted == ["small"]
    assert memory.used_bytes == 100


def test_connections_are_bounded_in_all_and_for_each_address() -> None:
    count = ConnectionCount(
        Limits(max_connections=4, max_connections_per_host=2, per_host_overrides={"10.0.0.9": 3, "10.0.0.8": 0})
    )
    assert count.admit("10.0.0.1") is None
    assert count.admit("10.0.0.1") is None
    assert count.admit("10.0.0.1") == "max.connections.per.ip is 2 for this address"
    assert count.admit("10.0.0.8") == "max.connections.per.ip is 0 for this address"
    assert count.admit("10.0.0.9") is None
    assert count.admit("10.0.0.9") is None
    assert count.admit("10.0.0.9") == "max.connections is 4"
    count.release("10.0.0.1")
    assert count.admit("10.0.0.9") is None
    for host in ("10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9"):
        count.release(host)
    assert count.total == 0
