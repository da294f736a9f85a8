"""Apache Kafka's own command line tools, under the names of their scripts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from support.downloads import fetched, run_client

POM = Path(__file__).resolve().parents[1] / "clients" / "java" / "pom.xml"
RUN_LIMIT_S = 100
# A tool lives for a second: a small heap, and no compiler that would only be warm when it is over. Most of the second
# went by with reading classes, so one tool leaves those that it has read for all of them (class data sharing). A Java
# that cannot use them says so among what the tool prints, unless told not to, and reads them itself.
FLAGS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable"]
LEAVES_CLASSES = "kafka-configs"  # reads the most
MAIN = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
    "transactional-message-copier": "TransactionalMessageCopier",
}


class KafkaTools:
    """`tools("kafka-topics", "--list", ...)` is what the tool prints."""

    def __init__(self, tool: Callable[[str, str], str]) -> None:
        self._java = tool("java", "any Java from 17 on")
        found = re.search(r"<version>(\d+\.\d+\.\d+)</version>", POM.read_text())
        assert found
        self._jars = fetched(f"kafka-{found[1]}", lambda folder: fetch_jars(tool, folder))
        self._classes = self._jars.with_name(f"{self._jars.name}.jsa")

    def __call__(self, name: str, *arguments: str, stdin: str = "") -> str:
        done = self.run(name, *arguments, stdin=stdin)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, name: str, *arguments: str) -> str:
        """What a tool says that does not succeed."""
        done = self.run(name, *arguments)
        assert done.returncode != 0, f"{name} should not succeed: {done.stdout}"
        return done.stdout + done.stderr

    def source(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What a program of ours prints, of which the source is in tests/clients/java."""
        return subprocess.run(
            [self._java, *FLAGS, "-cp", f"{self._jars}/*", str(POM.with_name(name)), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=RUN_LIMIT_S,
            check=True,
        ).stdout

    def run(self, name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        half = self._classes.with_suffix(f".{os.getpid()}")
        leaves = name == LEAVES_CLASSES and not self._classes.exists()
        command = self._command(name, arguments, leave=half if leaves else None)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
        if half.exists():
            half.rename(self._classes)
        return done

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """One that runs until it is told to stop; what it prints is to be read while it does."""
        command = self._command(name, arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def _command(self, name: str, arguments: tuple[str, ...], leave: Path | None = None) -> list[str]:
        main = MAIN[name] if MAIN[name].startswith("kafka.") else f"org.apache.kafka.tools.{MAIN[name]}"
        classes = f"-XX:SharedArchiveFile={self._classes}" if leave is None else f"-XX:ArchiveClassesAtExit={leave}"
        return self.java(main, *arguments, flags=[*FLAGS, classes])

    def java(self, main: str, *arguments: str, flags: Sequence[str] = FLAGS) -> list[str]:
        """The command that runs a class of Kafka's."""
        return [self._java, *flags, "-cp", f"{self._jars}/*", main, *arguments]


def fetch_jars(tool: Callable[[str, str], str], folder: Path) -> None:
    mvn = tool("mvn", "Maven, which fetches Kafka's jars")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    run_client("Apache Kafka from Maven", mvn, "-q", "-B", "-f", str(POM), *goal, cwd=folder)
