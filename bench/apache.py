"""Apache Kafka from its Maven artifacts: one node that is broker and controller, defaults wherever there is one.

The virtual machine's flags are those of Kafka's own start script, its heap of 1 GB included. No log is written: the
artifacts come without a binding for it, which spares Kafka a little work.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from brokers import Broken, Broker, free_port, pinned_to

VERSION = "4.3.0"
ARTIFACTS = ["kafka_2.13", "kafka-tools"]
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"kafka-{VERSION}"
FETCH_TIMEOUT_S = 600
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


class Unavailable(Exception):
    """There is no Apache Kafka to be had here; the sentence says why."""


def pom() -> str:
    needs = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
        f"<version>{VERSION}</version></dependency>"
        for name in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{needs}</dependencies></project>\n"
    )


def installation() -> Kafka:
    """Kafka's jars, fetched by Maven the first time."""
    java, mvn = shutil.which("java"), shutil.which("mvn")
    if java is None:
        raise Unavailable("there is no Java (17 or newer) on this machine")
    if not CACHE.exists():
        if mvn is None:
            raise Unavailable("there is no Maven (mvn) on this machine to fetch Kafka's jars with")
        print(f"fetching Apache Kafka {VERSION} with Maven into {CACHE}", flush=True)
        fetch(mvn)
    return Kafka(java, f"{CACHE}/*")


def fetch(mvn: str) -> None:
    """All or nothing: the folder gets its name when everything is in it."""
    work = CACHE.with_name(f"{CACHE.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        (work / "pom.xml").write_text(pom())
        command = [mvn, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={work / 'jars'}")
        run = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if run.returncode != 0:
            errors = [line for line in run.stdout.splitlines() if "ERROR" in line]
            raise Unavailable("Maven cannot fetch Kafka's jars: " + (errors or ["it does not say why"])[0].strip())
        (work / "jars").rename(CACHE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not fetch Kafka's jars in {FETCH_TIMEOUT_S} s") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


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
