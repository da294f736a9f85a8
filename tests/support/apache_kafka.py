"""Apache Kafka itself, from the jars that Maven brings: one node that is broker and controller, for tests of clients.

    kafka = ApacheKafka(jars, tmp_path, listeners={"SSL": "SSL"}, options={"ssl.keystore.type": "PEM", ...})
    kafka.start(); kafka.bootstrap; kafka.address("SSL"); kafka.kill(); kafka.start(); kafka.stop()

There is always a listener PLAINTEXT, for readiness and for tests that need no more. Ports are free ones, and stay the
same from one start to the next. A node dies with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from klamm.wire import frames
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from support.downloads import fetched
from support.java import KafkaTools

START_LIMIT_S = 60
STOP_LIMIT_S = 30
PAUSE_S = 0.05
ATTEMPTS = 3  # a port that was free when we looked may be somebody's when Kafka takes it
CLUSTER = "a2xhbW0tdGVzdHMtcnVuIQ"
LOG_FILE = "kafka.log"
CLASSES_FILE = "classes.jsa"
GUARD = 'read nothing; kill -9 "$0"'
"""Waits for the end of its input, which is when the test process is gone. Linux's own way, PR_SET_PDEATHSIG, would not
do: there, a child dies with the thread that started it."""
FLAGS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
OPTIONS: dict[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    # One node, and nothing that waits for more to come.
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "controlled.shutdown.enable": "false",
    # After a kill, the node comes back when the controller has stopped waiting for the one that was killed.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
}


class Died(Exception):
    """Kafka ended before it was ready; the text is what it said."""


class ApacheKafka:
    """`listeners` are further ones: their names with their protocols (SSL, SASL_PLAINTEXT, SASL_SSL). `scram_users` are
    there from the beginning, written as kafka-storage's `--add-scram` takes them."""

    def __init__(
        self,
        tools: KafkaTools,
        folder: Path,
        *,
        listeners: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        scram_users: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._tools = tools
        self._protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._options = options or {}
        self._scram_users = scram_users
        self._flags = FLAGS
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        return f"localhost:{self._ports[listener]}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin, or go on with the same data and the same ports; ready when this returns."""
        if self._flags is FLAGS:
            self._flags = [*FLAGS, f"-XX:SharedArchiveFile={loaded_classes(self._tools)}"]
        attempts = 1 if self._ports else ATTEMPTS
        for attempt in range(1, attempts + 1):
            self._prepare()
            try:
                self._spawn()
                return
            except Died:
                self.kill()
                if attempt == attempts:
                    raise
                self._ports = {}

    def _prepare(self) -> None:
        if self._ports:
            return
        self._ports = dict(zip(self._protocols, free_ports(len(self._protocols)), strict=True))
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._all_options().items()]
        self._properties.write_text("\n".join(lines) + "\n")
        scram = [word for user in self._scram_users for word in ("--add-scram", user)]
        command = ["format", "-g", "-t", CLUSTER, "-c", str(self._properties), *scram]
        line = self._tools.java("kafka.tools.StorageTool", *command, flags=self._flags)
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _all_options(self) -> dict[str, object]:
        listeners = [f"{name}://localhost:{port}" for name, port in self._ports.items()]
        return {
            **OPTIONS,
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in self._protocols.items()),
            "controller.quorum.voters": f"1@localhost:{self._ports['CONTROLLER']}",
            "log.dirs": self.folder / "data",
            **self._options,
        }

    def _spawn(self) -> None:
        with (self.folder / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                self._tools.java("kafka.Kafka", str(self._properties), flags=self._flags),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._guard = subprocess.Popen(["sh", "-c", GUARD, str(self._process.pid)], stdin=subprocess.PIPE)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PAUSE_S)
                raise Died(self.said())
            if time.monotonic() > deadline:
                raise Died(f"Kafka was not ready within {START_LIMIT_S} s: {self.said()}")

    def _is_ready(self) -> bool:
        """Whether it serves metadata, with itself in it."""
        try:
            with socket.create_connection(("localhost", self._ports["PLAINTEXT"]), timeout=START_LIMIT_S) as sock:
                return bool(ask_metadata(sock).brokers)
        except OSError:
            return False

    def said(self) -> str:
        """The end of its output."""
        return (self.folder / LOG_FILE).read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """As `kill -9` does: no goodbye of any kind."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator does; by force if that takes too long."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is not None:
            process.send_signal(how)  # does nothing if it has ended
            process.wait(STOP_LIMIT_S)
            self._process = None
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()


def loaded_classes(tools: KafkaTools) -> Path:
    """Kafka's classes as the virtual machine keeps them once they are loaded: most of the time of a start. Made by one
    that runs for it alone; one of another virtual machine is passed over by Java, without a word."""

    def make(folder: Path) -> None:
        kafka = ApacheKafka(tools, folder / "node")
        kafka._flags = [*FLAGS, f"-XX:ArchiveClassesAtExit={folder / CLASSES_FILE}"]
        kafka.start()
        kafka.stop()
        shutil.rmtree(kafka.folder)

    return fetched("kafka-classes", make) / CLASSES_FILE


def ask_metadata(sock: socket.socket) -> MetadataResponse:
    """OSError if there is no answer."""
    version = 9
    sock.sendall(b"".join(cast("list[bytes]", frames.encode_request(MetadataRequest(topics=[]), version, 1, "tests"))))
    with sock.makefile("rb") as stream:
        size = stream.read(4)
        frame = stream.read(int.from_bytes(size, "big"))
    if not frame:
        raise ConnectionError("closed without an answer")
    return frames.decode_response(MetadataResponse, frame, version)[1]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]
