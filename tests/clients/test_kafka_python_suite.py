"""kafka-python's own integration tests, from its source archive, as its authors run them against Apache Kafka.

The archive is of the version that requirements/dev.txt pins, by the same hashes. It lacks two modules of its test
package, which are ours here: one stands for a broker that runs already, the other mends a race of the client's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from support.downloads import FETCH_LIMIT_S, fetched, run_client
from support.process import BrokerProcess

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements" / "dev.txt"
RUN_LIMIT_S = 400
KAFKA_VERSION = "4.3"
# The suite expects four partitions, asks for replicas on broker 0 by its number, and has members with short sessions.
BROKER_OPTIONS = {
    "num.partitions": 4,
    "node.id": 0,
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
}
# All of them but those of SSL and SASL, which need a broker with such a listener.
FILES = ["test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py"]
# Skipped by the suite itself: what a client does with a broker before 0.10.1, which has no offsets by time.
FOR_OLD_BROKERS = {"test_kafka_consumer_offsets_for_time_old"}
SERVICE = '''\
class ExternalService:
    """A broker that somebody else has started and will stop."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = dump_logs = open


class SpawnedService:
    def __init__(self, *_):
        raise AssertionError("these tests start no broker")
'''
# A consumer that subscribes while its first Metadata request is under way forgets, with the answer, that it has to ask
# for its topics, and reads nothing for five minutes (seen in one run of ten). To run a test again would hide faults of
# the broker's, too; so the client is made to ask for topics that the answer did not have.
PACKAGE = """\
from kafka.cluster import ClusterMetadata

_update_metadata = ClusterMetadata.update_metadata


def update_metadata(self, metadata):
    _update_metadata(self, metadata)
    if set(self._topics) - {topic.name for topic in metadata.topics}:
        self._need_update = True


ClusterMetadata.update_metadata = update_metadata
"""

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + RUN_LIMIT_S)


def fetch_source(folder: Path, requirement: str) -> None:
    wanted = folder / "requirement.txt"
    wanted.write_text(requirement)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    run_client("kafka-python's source", *pip, "--require-hashes", "-r", str(wanted), "-d", str(folder), cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")


@pytest.fixture(scope="session")
def source() -> Path:
    pinned = re.search(r"^kafka-python==(\S+)(?: .*\\\n(?:\s+--hash=.*\n)+)", REQUIREMENTS.read_text(), re.M)
    assert pinned
    folder = fetched(f"kafka-python-{pinned[1]}", lambda folder: fetch_source(folder, pinned[0]))
    (root,) = folder.glob("*/")
    (root / "test" / "__init__.py").write_text(PACKAGE)
    (root / "test" / "service.py").write_text(SERVICE)
    return Path(root)


def test_all_that_are_for_brokers_of_today_pass(
    source: Path, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    left_out = FOR_OLD_BROKERS
    files = [source / "test" / "integration" / name for name in FILES]
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    assert left_out <= there, "a test that is left out is not there any more"
    broker = start_broker(options=BROKER_OPTIONS)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:klamm", f"--junitxml={report}"]
    command += ["--timeout=60", "--timeout-method=signal", "-o", "log_level=WARNING", "--tb=short"]
    command += [f"--deselect={file.relative_to(source)}::{name}" for file in files for name in sorted(left_out)]
    environment = {
        "KAFKA_ROOT": str(source),
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{broker.bootstrap}",
    }
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=source,
        env={**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    cases = [case for case in ET.parse(report).iter("testcase") if case.find("skipped") is None]
    assert {str(case.get("name")).partition("[")[0] for case in cases} == there - left_out
