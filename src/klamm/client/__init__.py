"""Talking to a Kafka cluster: connections, metadata, producing and fetching, without groups.

    from klamm.client import ClientConfig, Cluster
    from klamm.core.env.real import real_env

    config = ClientConfig.from_mapping({"bootstrap.servers": "localhost:9092"})
    async with await Cluster.connect(config, real_env()) as cluster:
        async with cluster.sender() as sender:
            await sender.put("greetings", b"hello")
        async with cluster.fetcher({("greetings", 0): 0}, end={("greetings", 0): 1}) as fetcher:
            async for chunk in fetcher:
                print(chunk.records)

Works with any Kafka from 0.11 on. Everything that is not the same twice comes in through an `Env`. May use `records`,
`wire` and `core`; must never import anything of the broker.
"""

from klamm.client.cluster import CONTROLLER, Cluster
from klamm.client.config import ClientConfig
from klamm.client.errors import (
    AuthenticationFailed,
    BadAnswer,
    BadRecords,
    BrokerSaid,
    ClientError,
    Closed,
    ConfigError,
    ConnectionLost,
    NotReachable,
    OffsetOutOfRange,
    TimedOut,
    TlsFailed,
    UnsupportedVersion,
)
from klamm.client.metadata import Broker, Metadata, Partition, Topic
from klamm.client.offsets import EARLIEST, LATEST, OffsetFound

__all__ = [
    "CONTROLLER",
    "EARLIEST",
    "LATEST",
    "AuthenticationFailed",
    "BadAnswer",
    "BadRecords",
    "Broker",
    "BrokerSaid",
    "ClientConfig",
    "ClientError",
    "Closed",
    "Cluster",
    "ConfigError",
    "ConnectionLost",
    "Metadata",
    "NotReachable",
    "OffsetFound",
    "OffsetOutOfRange",
    "Partition",
    "TimedOut",
    "TlsFailed",
    "Topic",
    "UnsupportedVersion",
]
