"""Spark's own Kafka connector from Maven, to be compared with.

It is named jar by jar: the poms of Spark point to repositories beside Maven Central, and of what they ask for PySpark
has the most. The newest connector there is runs on the newest PySpark, which is one minor release ahead; of its token
provider, which only delegation tokens use, some releases are missing in mirrors.
"""

from __future__ import annotations

from pathlib import Path

import maven

VERSION = "4.2.0"
ARTIFACTS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
]


def jars() -> list[Path]:
    """Fetched the first time; `Unavailable` if they are not to be had."""
    folder = maven.jars(f"spark-kafka-{VERSION}", f"Spark's Kafka connector {VERSION}", ARTIFACTS, alone=True)
    return sorted(folder.glob("*.jar"))
