"""Lives of a sink, each by a seed: batch after batch is written by tasks and committed by a driver, and all of them are
stopped, killed and revived at random moments, the broker too. At the end each batch must be there once.

What Spark does around a sink is played here: a task that has failed runs again or its batch fails; a batch that has
failed is aborted, and done again by another run, in other tasks; tasks may run twice; a driver may die anywhere, also
after it has committed and before it has written that down, and one that was thought dead may come back.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from klamm import Admin
from klamm.spark.sink.decisions import Names
from klamm.spark.sink.task import Job, Written
from support.committed import read_all
from support.sink_actors import Actor, Failed, Stopped

PARTITIONS = 3
KEYS = 6
WORKERS = 2
CALM_AFTER = 8
"""So often a batch is disturbed."""

Row = tuple[bytes, bytes]


@dataclass
class Told:
    """What happened in a story."""

    stops: int = 0
    kills: int = 0
    zombies: int = 0
    failures: list[str] = field(default_factory=list)
    attempts: int = 0
    broker_kills: int = 0


class Story:
    def __init__(
        self,
        seed: int,
        bootstrap: str,
        *,
        batches: int = 4,
        restart_broker: Callable[[], None] | None = None,
        **options: str,
    ) -> None:
        self.told = Told()
        self._rng = random.Random(seed)
        self._bootstrap = bootstrap
        self._topic = f"story-{seed}"
        self._sink = f"query:story-{seed}"
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": self._topic,
            "kafka.reconnect.backoff.max.ms": "50",
            "kafka.retry.backoff.ms": "10",
            **options,
        }
        self._batches = [self._rows(number) for number in range(batches)]
        self._restart_broker = restart_broker
        self._workers: list[Actor] = []
        self._driver: Actor | None = None
        self._zombies: list[tuple[Actor, Job | None, list[Written | None]]] = []
        self._disturbed = 0

    def _rows(self, number: int) -> list[Row]:
        count = 0 if self._rng.random() < 0.15 else self._rng.randint(1, 30)
        keys = [b"k%d" % self._rng.randrange(KEYS) for _ in range(count)]
        return [(key, b"%d/%d/%s" % (number, index, key)) for index, key in enumerate(keys)]

    def run(self) -> Told:
        from klamm.admin import NewTopic

        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics([NewTopic(self._topic, partitions=PARTITIONS)]).check()
            try:
                for number in range(len(self._batches)):
                    self._disturbed = 0
                    self._do(number)
                self._let_all_end()
                self._batches.append([(b"k0", b"%d/0/k0" % len(self._batches))])
                self._disturbed = CALM_AFTER
                self._do(len(self._batches) - 1)
                self._check(admin)
            finally:
                for actor in (*self._workers, *(one for one, *_ in self._zombies), self._driver):
                    if actor is not None:
                        actor.kill()
        return self.told

    # One batch.

    def _do(self, number: int) -> None:
        while not self._attempt(number):
            self._disturbed += 1
            assert self._disturbed < 2 * CALM_AFTER, self.told

    def _attempt(self, number: int) -> bool:
        """Whether it is done, as far as Spark knows."""
        self.told.attempts += 1
        job = Job(self._sink, number)
        messages: list[Written | None] = []
        for part in self._parts(self._batches[number]):
            message = self._task(job, part)
            messages.append(message)
            if message is None:
                self._abort(job, messages)
                if self._chance(0.3):
                    self._give_up()
                return False
            self._meddle()
        self._rng.shuffle(messages)
        return self._commit(job, messages) and self._chance(0.9)

    def _parts(self, rows: list[Row]) -> list[list[Row]]:
        """In as many tasks as it comes, all of a key in one."""
        count = self._rng.randint(1, 4)
        homes = {b"k%d" % key: self._rng.randrange(count) for key in range(KEYS)}
        parts: list[list[Row]] = [[] for _ in range(count)]
        for row in rows:
            parts[homes[row[0]]].append(row)
        return parts

    def _task(self, job: Job, rows: list[Row]) -> Written | None:
        found: list[Written] = []
        attempts = 2 if self._chance(0.15) else 1  # a speculative one
        for _ in range(6):
            worker = self._worker()
            worker.start("write", job, rows, stop_at=self._stop(0.15, 14))
            outcome = self._outcome(worker)
            if isinstance(outcome, Written):
                found.append(outcome)
            else:
                if isinstance(outcome, Stopped):
                    self._workers.remove(worker)
                    self._leave(worker, None, [])
                if self._rng.random() < 0.3:
                    return None
            if len(found) == attempts:
                return self._rng.choice(found)
        return self._rng.choice(found) if found else None

    def _commit(self, job: Job, messages: list[Written | None]) -> bool:
        driver = self._driver = self._driver or Actor(self._options)
        driver.start("commit", job, messages, stop_at=self._stop(0.5, 30))
        outcome = self._outcome(driver)
        if isinstance(outcome, Stopped):
            self._driver = None
            self._leave(driver, job, messages)
            return False
        if isinstance(outcome, Failed):
            self._abort(job, messages)
            return False
        if self._chance(0.2):
            driver.kill()
            self._driver = None
        return True

    def _abort(self, job: Job, messages: list[Written | None]) -> None:
        driver = self._driver = self._driver or Actor(self._options)
        driver.start("abort", job, messages, stop_at=self._stop(0.3, 10))
        if isinstance(self._outcome(driver), Stopped):
            self._driver = None
            self._leave(driver, None, [])

    def _give_up(self) -> None:
        """As the end of a run does; it may be thought dead and come back when the next one is about to decide."""
        leaving = Actor(self._options)
        leaving.start("give up", Job(self._sink, 0), [], stop_at=self._stop(0.5, 24))
        if isinstance(self._outcome(leaving), Stopped):
            self._leave(leaving, None, [])
        else:
            leaving.kill()

    # What disturbs it.

    def _chance(self, share: float) -> bool:
        """Of something to go wrong; `not` of it if it is large."""
        if self._disturbed >= CALM_AFTER:
            return share > 0.5
        return self._rng.random() < share

    def _stop(self, share: float, last: int) -> tuple[int, bool] | None:
        return (self._rng.randint(1, last), self._rng.random() < 0.5) if self._chance(share) else None

    def _worker(self) -> Actor:
        if len(self._workers) < WORKERS:
            self._workers.append(Actor(self._options))
        return self._rng.choice(self._workers)

    def _outcome(self, actor: Actor) -> Any:
        found = actor.outcome()
        if isinstance(found, Failed):
            self.told.failures.append(f"{found.kind}: {found.text}")
        elif isinstance(found, Stopped):
            self.told.stops += 1
        return found

    def _leave(self, actor: Actor, job: Job | None, messages: list[Written | None]) -> None:
        """Nobody waits for it any more: it is dead, or only seems so. A driver that comes back has its `job`."""
        if self._rng.random() < 0.5:
            self.told.kills += 1
            actor.kill()
        else:
            self._zombies.append((actor, job, messages))

    def _meddle(self) -> None:
        if self._zombies and self._chance(0.3):
            self._revive(self._rng.randrange(len(self._zombies)))
        if self._chance(0.05):
            self._give_up()
        if self._restart_broker is not None and self._chance(0.06):
            self.told.broker_kills += 1
            self._restart_broker()

    def _revive(self, index: int) -> None:
        actor, job, messages = self._zombies.pop(index)
        self.told.zombies += 1
        actor.go_on()
        if isinstance(self._outcome(actor), Failed) and job is not None:
            actor.start("abort", job, messages)
            self._outcome(actor)
        actor.kill()

    def _let_all_end(self) -> None:
        while self._zombies:
            self._revive(0)

    # What must be so at the end.

    def _check(self, admin: Admin) -> None:
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for values in read_all(self._bootstrap, self._topic, PARTITIONS).values():
            for value in values:
                found[value.rsplit(b"/", 1)[1]].append(value)
        expected: dict[bytes, list[bytes]] = defaultdict(list)
        for rows in self._batches:
            for key, value in rows:
                expected[key].append(value)
        assert found == expected, self.told
        listed = admin.list_transactions(states=["Ongoing"])
        assert Names(self._sink).tasks(one.transactional_id for one in listed) == [], self.told
