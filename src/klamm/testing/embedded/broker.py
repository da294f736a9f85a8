"""`Broker`: a broker in a child process, for as long as a `with` block lasts, and the faults it can be given.

The parent's side. It imports nothing of the broker itself, so a test suite pays for it only when it starts one.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any

from klamm.core.errors import ErrorCode
from klamm.testing.embedded.channel import BrokerGone, Channel, Order
from klamm.testing.embedded.folder import LOG_NAME, Folder
from klamm.testing.embedded.nursery import Nursery, is_available
from klamm.testing.embedded.process import Forked, Process, spawn
from klamm.testing.embedded.values import OptionValue, StoredRecord, dotted, error_code, option_text

ANSWER_S = 30.0
"""How long the broker may take for anything but its start and its stop."""
STOP_S = 20.0
LEAVE_S = 5.0
"""How long a broker may take to end by itself once it is not wanted any more; then it is killed."""
LOG_TAIL_BYTES = 8192
"""What a message of failure quotes of the broker's log."""

_RESERVES_PORTS = sys.platform == "linux"


class BrokerStartError(RuntimeError):
    """The broker did not start; the text says why."""


class Broker:
    """A real broker on a free port, with a temporary folder; both are gone when the `with` block ends.

    `broker(...)` makes one. It starts with `with` (or `start()`) and ends with the block (or `close()`). Commands may
    come from any thread. If this process dies, in whatever way, so does the broker, and its folder goes too.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | os.PathLike[str] | None = None,
        log_level: str = "warning",
        start_timeout: float = 30.0,
        options: Mapping[str, OptionValue] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._host = host
        self._wanted_port = port
        self._data = None if data is None else os.path.abspath(os.fspath(data))
        self._log_level = log_level
        self._start_timeout_s = start_timeout
        self._options = {dotted(name): option_text(value) for name, value in (options or {}).items()}
        if "log.dir" in self._options or "log.dirs" in self._options:
            raise ValueError("the folder of an embedded broker is named with data=...")
        self._nursery = nursery if nursery is not None and is_available() else None
        self._owner = os.getpid()
        self._port = 0
        self._pid = 0
        self._reserved: socket.socket | None = None
        self._folder: Folder | None = None
        self._channel: Channel | None = None
        self._process: Process | None = None

    # -- life

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it, or start it again after `stop` or `kill`: on the same port, with the same data."""
        if self.is_running:
            raise RuntimeError("the broker runs already")
        self._end_process()
        try:
            if self._folder is None:
                self._folder = Folder()
                self._reserve_port()
            self._launch(self._folder)
        except BaseException:
            self._end_process()
            if not self._pid:  # it never ran: there is nothing to keep
                self.close()
            raise

    def _reserve_port(self) -> None:
        """A socket that is bound and never listens keeps the port ours while the broker is down. Where that cannot be
        done, the broker takes a free port itself at its first start."""
        self._port = self._wanted_port
        if _RESERVES_PORTS:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._wanted_port, type=socket.SOCK_STREAM
            )[0]
            self._reserved = socket.socket(family, kind, protocol)
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._reserved.bind(address)
            except OSError as error:
                where = f"{self._host}:{self._wanted_port}"
                raise BrokerStartError(f"{where} cannot be had: {error.strerror}; port 0 takes a free one") from None
            self._port = self._reserved.getsockname()[1]

    def _launch(self, folder: Folder) -> None:
        order = Order(
            parent=os.getpid(),
            folder=folder.path,
            data=self._data or f"{folder.path}/data",
            keep=self._data is not None,
            host=self._host,
            port=self._port,
            options=self._options,
            log_level=self._log_level,
        )
        ours, theirs = socket.socketpair()
        with theirs:
            self._channel = Channel(ours, order)
            if self._nursery is None:
                self._process = spawn("child", theirs.fileno())
            else:
                self._nursery.fork(theirs.fileno())
        try:
            pid = self._channel.unasked(self._start_timeout_s)
            if self._process is None and sys.platform == "linux":
                self._process = Forked(os.pidfd_open(pid))
            folder.hold()
            address = self._channel.unasked(self._start_timeout_s)
        except (ValueError, BrokerGone, ProcessLookupError, FileNotFoundError) as error:
            raise BrokerStartError(f"{error}{self._log_tail()}") from None
        host, _, port = address.rpartition(":")
        self._host, self._port, self._pid = host.strip("[]"), int(port), pid

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does. The folder stays, for a `start`."""
        if self._channel is not None:
            self._channel.call("stop", STOP_S)
            has_ended = self._process is None or self._process.wait(STOP_S)
            self._end_process()
            if not has_ended:
                raise BrokerGone(f"the broker had stopped, but not ended within {STOP_S:g} s, and was killed")

    def kill(self) -> None:
        """Kill it, as `kill -9` does. The folder stays, and the next `start` recovers what is in it."""
        self._end_process()

    def restart(self) -> None:
        """`stop`, then `start`. Faults are forgotten, and the broker's clock is right again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the broker and remove its folder. Twice is fine. In a process forked from this one it does nothing."""
        if os.getpid() != self._owner:
            return
        if self._data is not None:
            try:
                self.stop()  # somebody wants the data: leave it in good order
            except (BrokerGone, ValueError):
                pass
        self._let_go()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _let_go(self) -> None:
        """Hang up, so that the broker ends and removes the folder itself: that works even if we are killed now."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None and self._process.wait(LEAVE_S):
            self._process = None
        self._end_process()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # -- where and what it is

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for a client's `bootstrap.servers`."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        """The same for the life of this object, over restarts."""
        if not self._port:
            raise RuntimeError("the broker has no port before it is started")
        return self._port

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether it has been started and answers."""
        if self._channel is None:
            return False
        try:
            self._call("topics")
        except BrokerGone:
            return False
        return True

    @property
    def data(self) -> str:
        """The folder of its data: `klamm log dump` and Kafka's own tools can read what is in it."""
        if self._data is not None:
            return self._data
        if self._folder is None:
            raise RuntimeError("the broker has no folder before it is started")
        return f"{self._folder.path}/data"

    @property
    def log(self) -> str:
        """What the broker has logged so far; `log_level` says how much that is."""
        if self._folder is not None:
            try:
                with open(f"{self._folder.path}/{LOG_NAME}", encoding="utf-8", errors="replace") as file:
                    return file.read()
            except FileNotFoundError:  # it did not get that far
                pass
        return ""

    def _log_tail(self) -> str:
        text = self.log[-LOG_TAIL_BYTES:].strip()
        return f"; its log:\n{text}" if text else ""

    def __repr__(self) -> str:
        where = f"at {self.bootstrap}" if self._port else "not started"
        return f"<klamm.testing.Broker {where}{'' if self._channel else ', not running'}>"

    # -- topics and records

    def create_topic(self, name: str, partitions: int = 1, **configs: OptionValue) -> None:
        """Create a topic; its configs have Kafka's names with underscores for dots. ValueError if it cannot be."""
        texts = {dotted(config): option_text(value) for config, value in configs.items()}
        self._call("create_topic", name=name, partitions=partitions, configs=texts)

    def topics(self) -> dict[str, int]:
        """The number of partitions of every topic."""
        found: dict[str, int] = self._call("topics")
        return found

    def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """All records of a topic, partition by partition, decompressed; what a test's own code has really written.
        For what fits into a test: ValueError above 32 MiB."""
        return [StoredRecord.from_json(*told) for told in self._call("records", topic=topic, partition=partition)]

    # -- faults

    def pause(self) -> None:
        """Answer nothing any more, as a broker in a long pause: connections stay and new ones are taken."""
        self._call("pause")

    def resume(self) -> None:
        """Go on after `pause`, with what has come in meanwhile."""
        self._call("resume")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """`with broker.paused():` is `pause`, and `resume` at the end."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def refuse_connections(self) -> None:
        """Be unreachable: cut all connections and refuse new ones."""
        self._call("refuse_connections")

    def accept_connections(self) -> None:
        """Be reachable again, on the same port."""
        self._call("accept_connections")

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """`with broker.unreachable():` is `refuse_connections`, and `accept_connections` at the end."""
        self.refuse_connections()
        try:
            yield
        finally:
            self.accept_connections()

    def drop_connections(self) -> int:
        """Cut all connections, once; how many there were."""
        return int(self._call("drop_connections"))

    def delay(self, seconds: float, api: str | int | None = None) -> None:
        """Hold every answer back, of one API ("Fetch") or of all; requests are handled at once. 0 ends it."""
        self._call("delay", seconds=seconds, api=api)

    def fail(self, api: str | int, error: ErrorCode | str | int, times: int | None = 1) -> None:
        """Answer the next requests of an API with an error, without doing what they ask; `times=None`: until
        `clear_faults`. `fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)`. Faults of an API come one after the
        other, in the order in which they were asked for."""
        self._call("fail", api=api, code=error_code(error), times=times)

    def drop_after(self, api: str | int = "Produce", times: int | None = 1) -> None:
        """Do what the next requests of an API ask for, and cut the connection instead of answering: the client cannot
        know what has happened. With "Produce" the records are in the log, and the client will send them again."""
        self._call("hang_up_after", api=api, times=times)

    def clear_faults(self) -> None:
        """Take all faults back: also resume, and accept connections."""
        self._call("clear_faults")

    def request_count(self, api: str | int) -> int:
        """How many requests of an API have come since the start: a test may want to see that a client has retried."""
        return int(self._call("requests", api=api))

    def faults_left(self, api: str | int) -> int:
        """How many requests of an API are still going to meet a fault of `fail` or `drop_after`."""
        return int(self._call("faults_left", api=api))

    def advance_time(self, by: float | timedelta) -> None:
        """Move the broker's clock forward, by seconds, and let retention do what is due then. Timers of clients, and
        of requests that wait, do not move with it."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        self._call("advance_time", ms=round(seconds * 1000))

    def _call(self, command: str, **arguments: object) -> Any:
        if self._channel is None:
            raise BrokerGone("the broker does not run; start it first")
        if os.getpid() != self._owner:
            raise RuntimeError("only the process that started the broker can tell it what to do")
        try:
            return self._channel.call(command, ANSWER_S, **arguments)
        except BrokerGone as gone:
            raise BrokerGone(f"{gone}{self._log_tail()}") from None
