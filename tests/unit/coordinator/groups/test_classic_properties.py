"""Classic groups under whatever members do, with time, crashes and deletions in between: what always holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.classic_group import State
from klamm.coordinator.machine import Outcome
from klamm.core.errors import ErrorCode
from support.groups import GroupDriver, Reply

CLIENTS = 5
STATIC = {3: "i3", 4: "i4"}
OFFERS = ({"range": b"r"}, {"range": b"r2", "sticky": b"s"}, {"sticky": b"s", "range": b"r"})
REBALANCE_S = 30
LONG_S = 2000.0
"""Longer than every time limit there is, one after the other."""

EVENT = st.one_of(
    st.tuples(st.just("join"), st.integers(0, CLIENTS - 1), st.integers(0, 7)),
    st.tuples(st.just("sync"), st.integers(0, CLIENTS - 1), st.just(0)),
    st.tuples(st.just("beat"), st.integers(0, CLIENTS - 1), st.just(0)),
    st.tuples(st.just("react"), st.just(0), st.just(0)),
    st.tuples(st.just("leave"), st.integers(0, CLIENTS - 1), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, CLIENTS - 1), st.just(0)),
    st.tuples(st.just("time"), st.just(0), st.sampled_from([0, 1, 5, 11, 31])),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
    st.tuples(st.just("delete"), st.just(0), st.just(0)),
)

OFTEN = [*("join", "sync", "react") * 4, *("beat", "time") * 2, "leave", "restart", "crash", "delete"]


class Client:
    """A member as a client library would be: it knows what it was told, and waits for one answer at a time."""

    def __init__(self, number: int) -> None:
        self.instance_id = STATIC.get(number)
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.everybody: list[tuple[str, str | None]] = []
        self.joining: Reply | None = None
        self.syncing: Reply | None = None
        self.asked_generation = -1


class World:
    def __init__(self, delay_ms: int) -> None:
        self.driver = GroupDriver(group_initial_rebalance_delay_ms=delay_ms)
        self.clients = [Client(n) for n in range(CLIENTS)]
        self.replies: list[Reply] = []
        """Of those who have not been cut off by a crash."""
        self.leaders: dict[int, set[str]] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}

    def step(self, what: str, number: int, detail: int) -> None:
        client = self.clients[number]
        match what:
            case "join" if client.joining is None and client.syncing is None:
                self.join(client, detail)
            case "sync" if client.joining is None and client.syncing is None and client.generation >= 0:
                self.sync(client)
            case "beat" if client.member_id:
                self.driver.beat(client.member_id, client.generation, client.instance_id)
            case "leave" if client.member_id:
                self.driver.leave((client.member_id, client.instance_id))
                client.forget()
            case "restart":
                client.forget()
            case "time":
                self.driver.advance(detail)
            case "crash":
                self.crash()
            case "delete":
                self.delete()
            case "react":
                for one in self.clients:
                    self.step("sync" if one.everybody or one.generation >= 0 else "join", self.clients.index(one), 1)
        self.driver.tick()
        self.hear()
        self.check()

    def join(self, client: Client, detail: int) -> None:
        client.joining = self.driver.join(
            client.member_id,
            instance_id=client.instance_id,
            protocols=OFFERS[detail % len(OFFERS)],
            session_ms=10_000,
            rebalance_ms=1000 * REBALANCE_S,
            version=9 if detail < 6 else 3 + 5 * (client.instance_id is not None),
        )
        self.replies.append(client.joining)

    def sync(self, client: Client) -> None:
        generation = client.generation
        leads = bool(client.everybody)
        assignments = {m: f"{generation}/{i or m}".encode() for m, i in client.everybody}
        group = self.driver.machine.groups.get("g")
        before = None if group is None else self.driver.group().phase
        client.syncing = self.driver.sync(client.member_id, generation, assignments, instance_id=client.instance_id)
        client.asked_generation = generation
        self.replies.append(client.syncing)
        if leads and before is State.COMPLETING and client.syncing.done and not client.syncing.error:
            self.assigned[generation] = {i or m: assignments[m] for m, i in client.everybody}

    def crash(self) -> None:
        self.driver.crash()
        kept = self.driver.group().generation if "g" in self.driver.machine.groups else -1
        for table in (self.leaders, self.assigned):
            for generation in [g for g in table if g > kept]:
                del table[generation]  # nobody was assigned anything in it
        self.replies.clear()
        for client in self.clients:
            client.joining = client.syncing = None

    def delete(self) -> None:
        group = self.driver.machine.groups.get("g")
        if group is not None and group.may_delete() == ErrorCode.NONE:
            self.driver.apply(Outcome(group.tombstones()))
            self.leaders.clear()
            self.assigned.clear()

    def hear(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining.done:
                self.joined(client, client.joining)
                client.joining = None
            if client.syncing is not None and client.syncing.done:
                self.synced(client, client.syncing)
                client.syncing = None

    def joined(self, client: Client, reply: Reply) -> None:
        answer = reply.answer
        client.everybody = []
        if reply.error == ErrorCode.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            if not answer.skip_assignment:
                client.everybody = [(m.member_id, m.group_instance_id) for m in answer.members]
            self.leaders.setdefault(answer.generation_id, set()).add(answer.leader)
        elif reply.error == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        else:
            client.forget()

    def synced(self, client: Client, reply: Reply) -> None:
        if reply.error == ErrorCode.NONE:
            name = client.instance_id or client.member_id
            expected = self.assigned[client.asked_generation].get(name, b"")
            assert reply.answer.assignment == expected, "everybody has what the leader of the generation gave it"
        client.everybody = []
        if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    def check(self) -> None:
        machine = self.driver.machine
        replayed = self.driver.replayed()
        assert set(replayed.groups) == set(machine.groups)
        if "g" not in machine.groups:
            return
        group = self.driver.group()
        again = replayed.groups["g"]
        assert type(again) is type(group) and again.saved == group.saved, "replaying gives the durable part"
        if group.phase in (State.STABLE, State.EMPTY):
            assert group.record().value == group.saved, "what a quiet group is, is in the log"
        if group.phase in (State.STABLE, State.COMPLETING):
            assert group.leader in group.members
            assert all(group.protocol in m.protocols for m in group.members.values()), "one protocol for all"
        waiting = [m for m in group.members.values() if m.join is not None]
        assert not waiting or group.phase is State.PREPARING
        assert group.phase is State.COMPLETING or not any(m.sync for m in group.members.values())
        assert set(group.by_instance.values()) <= set(group.members)
        dynamic = {g: {x for x in who if not x.startswith("i")} for g, who in self.leaders.items()}
        assert all(len(who) <= 1 for who in dynamic.values()), "a generation has one leader"
        own = [key for key in machine.timers if key.part == "classic"]
        assert len(own) <= len(group.members) + len(group.pending) + 2, "nothing is due for nobody"

    def finish(self) -> None:
        """All clients but the leader want their assignment, then say that they are there and do nothing else: nobody
        waits for longer than a rebalance and its sync may take. Then they fall silent: no member is left."""
        for what in ("join", "join", "sync"):
            for number, client in enumerate(self.clients):
                if not client.everybody:
                    self.step(what, number, 1)
        for _ in range(int(2 * REBALANCE_S / 5) + 2):
            self.driver.advance(5)
            for number in range(CLIENTS):
                self.step("beat", number, 0)
        assert all(reply.done for reply in self.replies), "nobody waits for ever"
        self.driver.advance(LONG_S)
        if "g" in self.driver.machine.groups:
            group = self.driver.group()
            assert (group.state, len(group.members), len(group.pending)) == ("Empty", 0, 0)
        assert not [key for key in self.driver.machine.timers if key.part == "classic"]


@given(st.lists(EVENT, max_size=60), st.sampled_from([0, 3000]))
def test_whatever_happens_generations_are_of_one_piece_and_nobody_waits_for_ever(
    events: list[tuple[str, int, int]], delay_ms: int
) -> None:
    world = World(delay_ms)
    for what, number, detail in events:
        world.step(what, number, detail)
    world.finish()


@pytest.mark.parametrize("seed", range(40))
def test_nor_in_a_long_life_with_many_rebalances(seed: int) -> None:
    rng = Random(seed)
    world = World(rng.choice([0, 3000]))
    for _ in range(120):
        what = rng.choice(OFTEN)
        detail = rng.choice([0, 1, 5, 11, 31]) if what == "time" else rng.randrange(8)
        world.step(what, rng.randrange(CLIENTS), detail)
    world.finish()
