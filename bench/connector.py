"""Spark's own Kafka connector from Maven, to be compared with.

It is named jar by jar: the poms of Spark point to repositories beside Maven Central, and of what they ask for PySpark
has the most. The newest connector there is runs on the newest PySpark, which is one minor release ahead; of its token
provider, which only delegation tokens use, some releases are missing in mirrors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from apache import FETCH_TIMEOUT_S, Unavailable

VERSION = "4.2.0"
ARTIFACTS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
]
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"spark-kafka-{VERSION}"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def pom() -> str:
    needs = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{ALONE}</dependency>"
        for group, name, version in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{needs}</dependencies></project>\n"
    )


def jars() -> list[Path]:
    """Fetched the first time, all or nothing."""
    if not CACHE.exists():
        mvn = shutil.which("mvn")
        if mvn is None:
            raise Unavailable("there is no Maven (mvn) on this machine to fetch Spark's Kafka connector with")
        print(f"fetching Spark's Kafka connector {VERSION} with Maven into {CACHE}", flush=True)
        fetch(mvn)
    return sorted(CACHE.glob("*.jar"))


def fetch(mvn: str) -> None:
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
            raise Unavailable("Maven cannot fetch the connector: " + (errors or ["it does not say why"])[0].strip())
        (work / "jars").rename(CACHE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not fetch the connector in {FETCH_TIMEOUT_S} s") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
