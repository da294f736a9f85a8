"""One partition of an internal topic and the machine that it keeps the state of.

The shard is the only one to drive its machine. It appends what the machine decides as one batch, replays it, and gives
the answers once the high watermark has passed it; with one replica and a disk that keeps up that is within the same
call. It loads the machine from the log, ticks it, tells it of new metadata, and throws it away when the log has not
taken a batch, or when another broker leads: then everybody who waits is answered, and the next machine starts from the
log.

A shard must never change a machine but by its methods, and never answer before what the answer rests on is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from klamm.coordinator.calls import Call, Uncommitted, as_coordinator, fail
from klamm.coordinator.loading import load
from klamm.coordinator.machine import Machine, Now, Outcome, Producer
from klamm.coordinator.records import encode_batch
from klamm.core.errors import BrokerError, ErrorCode
from klamm.log.results import Appended, Rejected
from klamm.metadata.replay import Delta
from klamm.records.record import ControlType, EndMarker, encode_end_marker
from klamm.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm.coordinator.shared import Services
    from klamm.metadata.image import Image
    from klamm.replica.partition import Partition
    from klamm.wire.schema import Response

M = TypeVar("M", bound=Machine)

FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 10.0
"""Between two attempts to load what cannot be loaded, or cannot write when it is; the pause doubles."""
TICK_RETRY_S: Final = 1.0
"""After a tick that failed, which is a mistake in the machine."""

_logger = logging.getLogger(__name__)


class Shard(Generic[M]):
    """`machine` is there while requests are taken; otherwise `error` says why not."""

    def __init__(self, index: int, partition: Partition, make: Callable[[], M], services: Services) -> None:
        self.index = index
        self.partition = partition
        self.machine: M | None = None
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._make = make
        self._services = services
        self._epoch = partition.leader_epoch
        self._failures = 0  # machines that were thrown away since one has written something
        self._last_offset = -1  # of what the machine's state rests on
        self._uncommitted: deque[Uncommitted] = deque()
        self._calls: dict[Call, None] = {}  # requests that the machine answers later
        self._loading: asyncio.Task[None] | None = None
        self._moved: asyncio.Event | None = None  # while loading: the log has moved
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        partition.waiters[self] = 0

    @property
    def loading(self) -> bool:
        return self._loading is not None

    # ---- events

    def call(self, decide: Callable[[M, Call, Now], Outcome], refuse: Callable[[ErrorCode], Response]) -> Call:
        """A request. The answer is in the Call, now or later."""
        call = Call(refuse)
        machine = self.machine
        if machine is None:
            self._services.turns.hurry(self.index)
            call.set(refuse(self.error))
            return call
        now = self._now()
        self._commit(machine, decide(machine, call, now), now)
        if not call.done:
            if self.machine is machine:
                self._calls[call] = None
                call.on_cancel(lambda: self._forget(call))
            else:  # the machine is gone, and with it what it had to say
                call.set(refuse(self.error))
        return call

    def _forget(self, call: Call) -> None:
        self._calls.pop(call, None)

    def run(self, decide: Callable[[M, Now], Outcome]) -> asyncio.Future[None]:
        """An event that is no request. The future is done when what came of it is committed; BrokerError if that
        cannot be, because the shard takes nothing or has lost what was decided."""
        done: asyncio.Future[None] = self._services.loop.create_future()
        machine = self.machine
        if machine is None:
            fail(done, self.error)
        else:
            now = self._now()
            self._commit(machine, decide(machine, now), now, done)
        return done

    @property
    def is_settled(self) -> bool:
        """Everything that the machine's state rests on is committed."""
        return self.machine is None or (self._last_offset < self.partition.high_watermark and not self._uncommitted)

    def settled(self) -> asyncio.Future[None]:
        """Done when what there is now is committed; BrokerError if it is lost."""
        return self.run(lambda machine, now: Outcome())

    def write_marker(self, producer: Producer, marker: EndMarker, transaction_version: int) -> Appended | Rejected:
        """A transaction has ended, as its coordinator says: what it has committed here counts, or is gone."""
        machine = self.machine
        if machine is None:
            return Rejected(self.error, "")
        batch = encode_end_marker(
            marker, producer_id=producer.id, producer_epoch=producer.epoch, timestamp=self._now().time_ms
        )
        result = self.partition.append_internal(bytearray(batch), transaction_version=transaction_version)
        if isinstance(result, Rejected) or self.machine is not machine:
            return result
        self._last_offset = result.last_offset
        try:
            machine.replay_end(producer, marker.type == ControlType.COMMIT)
        except Exception:
            self._broken("a marker")
            raise
        self._wait(machine, Outcome(), None)
        self.partition.wake()
        return result

    def image_changed(self, image: Image, delta: Delta) -> None:
        machine = self.machine
        if machine is not None:
            now = self._now()
            self._commit(machine, machine.image_changed(image, delta, now), now)

    def _tick(self) -> None:
        """Once, and again on the next turn of the loop if more is due: a machine does one thing at a time, or as much
        as it thinks right, and the loop has others to serve."""
        self._timer = None
        machine = self.machine
        if machine is None:
            return
        now = self._now()
        due = machine.next_due
        try:
            if due is not None and due <= now.monotonic:
                self._commit(machine, machine.tick(now), now)
        except Exception:
            if self.machine is machine and self._timer is None:
                self._set_timer(now.monotonic + TICK_RETRY_S)
            raise
        if machine is self.machine:
            self._look_at_clock(machine)

    def _now(self) -> Now:
        clock = self._services.env.clock
        return Now(clock.monotonic(), clock.time_ms())

    # ---- writing

    def _commit(self, machine: M, outcome: Outcome, now: Now, done: asyncio.Future[None] | None = None) -> None:
        """Write, replay, and answer, now or when it is committed."""
        self._services.counters.events += 1
        records = outcome.records
        if not records:
            self._wait(machine, outcome, done)
            return
        partition = self.partition
        producer = outcome.producer
        try:
            batch = encode_batch(records, producer, now.time_ms)
        except Exception:
            _logger.exception("%s-%d cannot encode what was decided", partition.topic, self.index)
            result: Appended | Rejected = Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, "a record cannot be encoded")
        else:
            result = partition.append_internal(batch)
        if type(result) is Rejected:
            self._not_written(machine, outcome, done, result)
            return
        assert type(result) is Appended
        if self.machine is not machine:  # written, but the log has failed with it
            self._refuse(outcome, done, self.error)
            return
        try:
            for record in records:
                machine.replay(record, producer)
        except Exception:
            self._broken("a record")
            raise
        self._last_offset = result.last_offset
        self._failures = 0
        self._wait(machine, outcome, done)
        partition.wake()

    def _wait(self, machine: M, outcome: Outcome, done: asyncio.Future[None] | None) -> None:
        if self._last_offset < self.partition.high_watermark and not self._uncommitted:
            self._deliver(outcome, done)
        else:
            self._uncommitted.append(Uncommitted(self._last_offset, outcome, done))
        if self.machine is machine:
            self._look_at_clock(machine)

    def _deliver(self, outcome: Outcome, done: asyncio.Future[None] | None) -> None:
        calls = self._calls
        for reply, value in outcome.answers:
            call = cast(Call, reply)
            if calls:
                calls.pop(call, None)
            call.set(value)
        for effect in outcome.effects:
            self._services.on_effect(self.index, effect)
        if done is not None and not done.done():
            done.set_result(None)

    def _not_written(self, machine: M, outcome: Outcome, done: asyncio.Future[None] | None, refused: Rejected) -> None:
        code = as_coordinator(refused.code)
        if outcome.undo is not None:
            outcome.undo()
        self._refuse(outcome, done, code)
        if outcome.only_records or outcome.undo is not None or self.machine is not machine:
            return  # the machine is what it was; or is gone already, because the partition is
        _logger.warning(
            "%s-%d did not take what its coordinator decided, which starts anew from the log: %s",
            self.partition.topic,
            self.index,
            refused.message or refused.code.name,
        )
        self._start_anew(ErrorCode.NOT_COORDINATOR)

    def _refuse(self, outcome: Outcome, done: asyncio.Future[None] | None, code: ErrorCode) -> None:
        for reply, _ in outcome.answers:
            call = cast(Call, reply)
            self._calls.pop(call, None)
            if not call.done:
                call.set(call.refuse(code))
        if done is not None and not done.done():
            fail(done, code)

    def _broken(self, what: str) -> None:
        """What is in the log could not be replayed: the machine is not what the log says any more."""
        _logger.error("%s-%d could not replay %s that it has written", self.partition.topic, self.index, what)
        self._start_anew(ErrorCode.NOT_COORDINATOR)

    # ---- as a waiter of the partition

    def moved(self, partition: Partition, slot: int) -> None:
        if self._moved is not None:
            self._moved.set()
        # Looked up anew each time: what is delivered may bring the machine down, and then all others are refused.
        while self._uncommitted and self._uncommitted[0].offset < partition.high_watermark:
            first = self._uncommitted.popleft()
            self._deliver(first.outcome, first.done)

    def interrupted(self, partition: Partition, slot: int) -> None:
        """Another leader, another epoch, a log that has failed: what the machine has counted on may be gone."""
        if partition.available() or partition.leader_epoch != self._epoch:
            self._start_anew(ErrorCode.NOT_COORDINATOR)

    # ---- the clock

    def _look_at_clock(self, machine: M) -> None:
        """A timer that is too early costs one look; so it is not set anew with every heartbeat that moves it on."""
        due = machine.next_due
        if due is not None and (self._timer is None or due < self._timer_due):
            self._set_timer(due)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        delay = due - self._services.env.clock.monotonic()
        self._timer = self._services.loop.call_later(max(0.0, delay), self._tick)

    # ---- the life of a machine

    def start(self) -> None:
        """Take requests as soon as the log is replayed: at once, if it is empty."""
        log = self.partition.log
        assert self.machine is None and self._loading is None
        if log is None or self.partition.available() or log.start_offset != log.next_offset:
            self._start_loading()
            return
        try:
            self._begin(self._make())
        except Exception:
            self._start_anew(ErrorCode.NOT_COORDINATOR)
            raise

    def _start_loading(self) -> None:
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._loading = self._services.loop.create_task(self._load())

    def resign(self, error: ErrorCode) -> None:
        """Give up for good: whoever waits is answered with this error, and so is who comes later."""
        self._drop(error)
        self.error = error
        self.partition.waiters.pop(self, None)

    def _start_anew(self, error: ErrorCode) -> None:
        self._drop(error)
        self._services.counters.restarts += 1
        if self.partition.error:
            self.error = error  # another broker leads; this one stays here in case that it leads again
            return
        self._failures += 1
        self._start_loading()

    def _drop(self, error: ErrorCode) -> None:
        """The machine goes, and everybody who waits is told."""
        machine, self.machine = self.machine, None
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._uncommitted = self._uncommitted, deque()
        for one in waiting:
            self._refuse(one.outcome, one.done, error)
        if machine is not None:
            try:
                self._deliver(Outcome(answers=machine.resigned(error)), None)
            except Exception:  # what matters is that everybody hears of it
                _logger.exception("%s-%d: the machine failed while it resigned", self.partition.topic, self.index)
        calls, self._calls = self._calls, {}
        for call in calls:
            if not call.done:
                call.set(call.refuse(error))

    def _begin(self, machine: M) -> None:
        """Everything is replayed."""
        self._epoch = self.partition.leader_epoch
        log = self.partition.log
        self._last_offset = -1 if log is None else log.next_offset - 1
        self.machine = machine
        self.error = ErrorCode.NONE
        now = self._now()
        self._commit(machine, machine.image_changed(self._services.image(), Delta(), now), now)
        if self.machine is machine:
            self._commit(machine, machine.loaded(now), now)

    async def _load(self) -> None:
        """Until it works, or until somebody cancels it. Not at once if that has not helped the last time."""
        while True:
            if self._failures > 1:
                await asyncio.sleep(min(FIRST_RETRY_S * 2 ** (self._failures - 2), LONGEST_RETRY_S))
            try:
                if await self._try_to_load():
                    return
            except (OSError, BrokerError, ProtocolError) as error:
                _logger.error("%s-%d cannot be loaded: %s", self.partition.topic, self.index, error)
            except Exception:
                # Even a broken invariant: what is in the log would break it at each start, and the rest of the broker
                # is none the worse for it.
                _logger.exception("%s-%d cannot be loaded", self.partition.topic, self.index)
            self._failures = max(self._failures, 1) + 1
            self._services.counters.load_failures += 1

    async def _try_to_load(self) -> bool:
        """False while the log is offline."""
        services = self._services
        await services.turns.take(self.index)
        try:
            log = self.partition.log
            if log is None or self.partition.available():
                return False
            self._epoch = self.partition.leader_epoch
            machine = self._make()
            begun = services.env.clock.monotonic()
            loaded = await load(log, machine, services.known, services.env.executor, self._progress)
            self._loading = None
            services.counters.loads += 1
            services.counters.load_s += services.env.clock.monotonic() - begun
            try:
                self._begin(machine)
            except Exception:
                _logger.exception("%s-%d cannot begin", self.partition.topic, self.index)
                self._start_anew(ErrorCode.NOT_COORDINATOR)
        finally:
            services.turns.give_back()
        services.on_loaded(loaded)
        return True

    async def _progress(self) -> None:
        self._moved = asyncio.Event()
        try:
            await self._moved.wait()
        finally:
            self._moved = None
