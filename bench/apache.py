"""Apache Kafka from its Maven artifacts: one node that is broker and controller, defaults wherever there is one.

The virtual machine's flags are those of Kafka's own start script, its heap of 1 GB included. No log is written: the
artifacts come without a binding for it, which spares Kafka a little work.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import maven
from brokers import Broken, Broker, free_port, pinned_to

VERSION = "4.3.0"
ARTIFACTS = [("org.apache.kafka", name, VERSION) for name in ("kafka_2.13", "kafka-tools")]
FORMAT_TIMEOUT_S = 60
PERF_TIMEOUT_S = 120
HEAP = ["-Xms1g", "-Xmx1g"]
FLAGS = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
SENT = re.compile(r"(\d+)(?: steady state)? records sent, ([0-9.]+) records/sec")


def installation() -> Kafka:
    """Kafka's jars, fetched by Maven the first time; `Unavailable` if they or a Java are not to be had."""
    java = shutil.which("java")
    if java is None:
        raise maven.Unavailable("there is no Java (17 or newer) on this machine")
    folder = maven.jars(f"kafka-{VERSION}", f"Apache Kafka {VERSION}", ARTIFACTS)
    return Kafka(java, f"{folder}/*")


class Kafka:
    """An installation: what it takes to start brokers and tools."""

    def __init__(self, java: str, classpath: str) -> None:
        self.java = java
        self.classpath = classpath

    def java_version(self) -> str:
        run = subprocess.run([self.java, "-version"], capture_output=True, text=True, check=False)
        return (run.stderr.splitlines() or ["unknown"])[0].replace('"', "")

    def start(self, data: Path, cores: Sequence[int], settings: Sequence[str]) -> Broker:
        """A formatted folder, then a broker that has been spawned but may not answer yet."""
        port, controller = free_port(), free_port()
        properties = data / "server.properties"
        properties.write_text("\n".join(properties_lines(data / "logs", port, controller, settings)) + "\n")
        cluster = base64.urlsafe_b64encode(b"klamm-benchmark!").decode().rstrip("=")
        self.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
        command = [self.java, *HEAP, *FLAGS, "-cp", self.classpath, "kafka.Kafka", str(properties)]
        broker = Broker(command, cores, port)
        broker.name = "Kafka"
        return broker

    def run(self, main_class: str, *arguments: str) -> None:
        command = [self.java, "-cp", self.classpath, main_class, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if run.returncode != 0:
            raise Broken(f"{main_class}: {run.stderr.strip() or run.stdout.strip()}")

    def producer_perf(self, to: str, topic: str, cores: Sequence[int], *, size: int, records: int, warm: int) -> float:
        """Java's producer with its defaults and acks=all; records a second once `warm` of them are through."""
        command = [self.java, "-Xmx512m", "-cp", self.classpath, "org.apache.kafka.tools.ProducerPerformance"]
        command += ["--bootstrap-server", to, "--topic", topic, "--num-records", str(records), "--throughput", "-1"]
        command += ["--record-size", str(size), "--warmup-records", str(warm), "--command-property", "acks=all"]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=PERF_TIMEOUT_S, preexec_fn=pinned_to(*cores), check=False
        )
        found = SENT.findall(run.stdout)
        if run.returncode != 0 or not found or int(found[-1][0]) != records - warm:
            said = run.stderr.strip() or run.stdout.strip()
            raise Broken(f"producer-perf-test failed: {said[-300:]}")
        return float(found[-1][1])


def properties_lines(folder: Path, port: int, controller: int, settings: Sequence[str]) -> list[str]:
    """What Kafka has no default for, and the settings that both brokers get."""
    return [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "controller.listener.names=CONTROLLER",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"log.dirs={folder}",
        *settings,
    ]
