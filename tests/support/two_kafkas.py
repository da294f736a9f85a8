"""A second broker of Apache Kafka beside the first one, so that partitions have followers and leaders that move."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from support.apache_kafka import START_LIMIT_S, ApacheKafka, ask_metadata
from support.java import KafkaTools


class SecondBroker(ApacheKafka):
    """Has node id 2, and the controller of `first`, which has to run."""

    def __init__(
        self, tools: KafkaTools, folder: Path, first: ApacheKafka, options: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(tools, folder, options=options)
        self._first = first

    def _all_options(self) -> dict[str, object]:
        return {
            **super()._all_options(),
            "process.roles": "broker",
            "node.id": 2,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@{self._first.address('CONTROLLER')}",
        }

    def _is_ready(self) -> bool:
        """Whether it is in the cluster by its own word."""
        try:
            with socket.create_connection(("localhost", self._ports["PLAINTEXT"]), timeout=START_LIMIT_S) as sock:
                return any(broker.node_id == 2 for broker in ask_metadata(sock).brokers)
        except OSError:
            return False
