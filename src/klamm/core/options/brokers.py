"""The broker's options that do something: each declared once, under Kafka's name, or `klamm.` where Kafka has none.

Command line, files, validation, DescribeConfigs and the documentation all read this table. Where a default, a bound or
the way to change an option differs from Kafka's, the reason stands beside it. Kafka's other options are in `known`,
which a start does not load.
"""

from __future__ import annotations

from klamm.core.options.compaction import COMPACTION_OPTIONS
from klamm.core.options.consumer_groups import CONSUMER_GROUP_OPTIONS
from klamm.core.options.option import INT_MAX, LONG_MAX, Kind, Option, Update

_KIB = 1024
_MIB = 1024 * 1024

BOOL, STRING, SHORT, INT, LONG = Kind.BOOL, Kind.STRING, Kind.SHORT, Kind.INT, Kind.LONG
DOUBLE, LIST = Kind.DOUBLE, Kind.LIST

ANY_TIME = Update.CLUSTER_WIDE

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

# Kafka 4 asks for segments of 1 MiB at least. We keep the floor of older versions: tests want small segments.
LEAST_SEGMENT_BYTES = 14

_NODE = (
    Option("node.id", INT, 1, "Number of this node; unique in its cluster, and never changed.", at_least=0),
    Option("broker.id", INT, -1, "Older name of node.id.", at_least=-1),
    Option("broker.rack", STRING, None, "Rack or zone of this broker; replicas are spread over racks."),
    Option("log.dirs", LIST, (), "Folder for the data (only one)."),
    Option("log.dir", STRING, None, "Older name of log.dirs."),
    # Kafka can change the number of threads while it runs; ours is fixed at the start.
    Option("num.io.threads", INT, 8, "Threads for file operations that may block.", at_least=1, at_most=256),
)

# Kafka opens and closes listeners while it runs; here they are read at the start.
_LISTENERS = (
    # Kafka listens on every interface by default. Without authentication that is a risk, so this machine only.
    Option(
        "listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), "Where to listen: NAME://HOST:PORT, separated by commas."
    ),
    Option("advertised.listeners", LIST, (), "Addresses that clients are told, where they differ from listeners."),
    Option(
        "listener.security.protocol.map",
        LIST,
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "Which protocol each listener name speaks: NAME:PROTOCOL, separated by commas.",
    ),
    Option("controller.listener.names", LIST, (), "Listeners meant for controllers of Kafka; not opened here."),
)

_SOCKETS = (
    Option(
        "socket.request.max.bytes",
        INT,
        100 * _MIB,
        "Largest request; a larger one closes its connection.",
        at_least=1 * _KIB,
    ),
    # Kafka: 50. A restart brings all clients back at once, and who finds no place in the line waits a second.
    Option("socket.listen.backlog.size", INT, 1024, "Connections that may wait to be accepted.", at_least=1),
    Option("max.connections", INT, INT_MAX, "Open connections in all.", at_least=0, update=ANY_TIME),
    Option("max.connections.per.ip", INT, INT_MAX, "Open connections from one address.", at_least=0, update=ANY_TIME),
    Option(
        "max.connections.per.ip.overrides",
        LIST,
        (),
        "Other limits for some addresses: ADDRESS:COUNT, separated by commas.",
        update=ANY_TIME,
    ),
    Option("connections.max.idle.ms", LONG, 600_000, "Connections idle for longer are closed; -1: never.", at_least=-1),
    Option(
        "queued.max.request.bytes", LONG, -1, "Bytes of requests in work in all; -1: klamm.inflight.bytes.", at_least=-1
    ),
    Option(
        "klamm.connection.inflight.requests",
        INT,
        100,
        "Requests of one connection in work before reading from it pauses.",
        at_least=1,
    ),
    Option(
        "klamm.connection.inflight.bytes",
        LONG,
        32 * _MIB,
        "Bytes of requests and unsent answers of one connection before reading from it pauses.",
        at_least=1 * _KIB,
    ),
    Option(
        "klamm.inflight.bytes",
        LONG,
        256 * _MIB,
        "Bytes of requests and unsent answers of all connections before reading pauses.",
        at_least=1 * _MIB,
    ),
    Option("klamm.delayed.requests", INT, 100_000, "Produce and fetch requests that may wait at a time.", at_least=1),
    # Prometheus asks here; what it gets names topics and clients' habits, so nobody is served who was not meant to be.
    Option("klamm.metrics.listener", STRING, None, "Serve /metrics and /health over HTTP here: HOST:PORT."),
    Option(
        "klamm.metrics.partitions",
        BOOL,
        True,
        "Metrics of each partition and topic; left out in any case above 2,000 partitions.",
    ),
)

_REQUESTS = (
    Option("fetch.max.bytes", INT, 55 * _MIB, "Most bytes in the answer to one fetch.", at_least=1 * _KIB),
    Option(
        "max.request.partition.size.limit",
        INT,
        2000,
        "Most partitions in one answer of DescribeTopicPartitions.",
        at_least=1,
    ),
    Option("max.incremental.fetch.session.cache.slots", INT, 1000, "Incremental fetch sessions kept.", at_least=0),
    Option("num.partitions", INT, 1, "Partitions of a topic that does not say how many.", at_least=1),
    Option(
        "default.replication.factor",
        INT,
        1,
        "Replicas of a topic that does not say how many.",
        at_least=1,
        at_most=32767,
    ),
    Option("auto.create.topics.enable", BOOL, True, "Create a topic when a client first asks for it."),
    Option("delete.topic.enable", BOOL, True, "Allow topics to be deleted."),
    Option(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        "Idle producers are forgotten after this time.",
        at_least=1,
        update=ANY_TIME,
    ),
    Option(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        "How often idle producers are looked for.",
        at_least=1,
        internal=True,
    ),
    Option(
        "transaction.partition.verification.enable",
        BOOL,
        True,
        "Check that a batch belongs to a transaction that is under way.",
        update=ANY_TIME,
    ),
    Option(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        "How long the broker itself retries while an earlier transaction ends.",
        at_least=0,
    ),
    Option("add.partitions.to.txn.retry.backoff.ms", INT, 20, "Pause between such retries.", at_least=1),
)

_LOG = (
    Option(
        "log.segment.bytes", INT, 1024 * _MIB, "Size of a segment file.", at_least=LEAST_SEGMENT_BYTES, update=ANY_TIME
    ),
    Option(
        "log.roll.ms",
        LONG,
        None,
        "Age at which a new segment is begun; see log.roll.hours.",
        at_least=1,
        update=ANY_TIME,
    ),
    Option("log.roll.hours", INT, 168, "Age at which a new segment is begun, in hours.", at_least=1),
    Option(
        "log.roll.jitter.ms",
        LONG,
        None,
        "Random part, up to this much, taken off the roll age: logs that began together do not roll together.",
        at_least=0,
        update=ANY_TIME,
    ),
    Option("log.roll.jitter.hours", INT, 0, "log.roll.jitter.ms in hours.", at_least=0),
    Option(
        "log.retention.ms", LONG, None, "Segments older than this are deleted; -1 never.", at_least=-1, update=ANY_TIME
    ),
    Option("log.retention.minutes", INT, None, "log.retention.ms in minutes.", at_least=-1),
    Option("log.retention.hours", INT, 168, "log.retention.ms in hours.", at_least=-1),
    Option("log.retention.bytes", LONG, -1, "Size a partition may keep; below 0 there is no limit.", update=ANY_TIME),
    Option("log.retention.check.interval.ms", LONG, 300_000, "How often old segments are looked for.", at_least=1),
    Option(
        "log.flush.interval.messages",
        LONG,
        LONG_MAX,
        "Records after which a log is flushed.",
        at_least=1,
        update=ANY_TIME,
    ),
    Option("log.flush.interval.ms", LONG, None, "Time after which a log is flushed.", at_least=0, update=ANY_TIME),
    Option(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX, "Stands in for log.flush.interval.ms where that is not set."
    ),
    Option(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often the recovery points are written.", at_least=1
    ),
    Option("log.index.interval.bytes", INT, 4096, "Bytes of log for each index entry.", at_least=0, update=ANY_TIME),
    Option(
        "log.index.size.max.bytes",
        INT,
        10 * _MIB,
        "Size of an index at which its segment ends.",
        at_least=4,
        update=ANY_TIME,
    ),
    Option(
        "log.cleanup.policy",
        LIST,
        ("delete",),
        "What happens to old data: segments are deleted, or compacted to the last record of each key, or both.",
        choices=CLEANUP_POLICIES,
        update=ANY_TIME,
    ),
    Option(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps the records: the producer's or the broker's.",
        choices=TIMESTAMP_TYPES,
        update=ANY_TIME,
    ),
    Option(
        "log.message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "How far a record's timestamp may lie in the past.",
        at_least=0,
        update=ANY_TIME,
    ),
    Option(
        "log.message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        "How far a record's timestamp may lie in the future.",
        at_least=0,
        update=ANY_TIME,
    ),
    Option(
        "log.segment.delete.delay.ms",
        LONG,
        60_000,
        "Deleted files are kept for this time.",
        at_least=0,
        update=ANY_TIME,
    ),
    Option("message.max.bytes", INT, 1_048_588, "Largest batch.", at_least=0, update=ANY_TIME),
    Option(
        "compression.type",
        STRING,
        "producer",
        "How batches are stored: as the producer compressed them, or compressed anew.",
        choices=COMPRESSION_TYPES,
        update=ANY_TIME,
    ),
    Option(
        "compression.gzip.level",
        INT,
        -1,
        "Level for gzip; -1 is its own default.",
        at_least=1,
        at_most=9,
        or_else=-1,
        update=ANY_TIME,
    ),
    Option("compression.lz4.level", INT, 9, "Level for lz4.", at_least=1, at_most=17, update=ANY_TIME),
    Option("compression.zstd.level", INT, 3, "Level for zstd.", at_least=-131_072, at_most=22, update=ANY_TIME),
    Option(
        "min.insync.replicas", INT, 1, "Replicas that must have a record for acks=all.", at_least=1, update=ANY_TIME
    ),
)

_CLASSIC_GROUPS = (
    Option(
        "group.initial.rebalance.delay.ms", INT, 3000, "How long a new group waits for more members before it begins."
    ),
    Option("group.max.session.timeout.ms", INT, 1_800_000, "Longest session time-out that a member may ask for."),
    Option("group.min.session.timeout.ms", INT, 6000, "Shortest session time-out that a member may ask for."),
    Option("group.max.size", INT, INT_MAX, "Most members of a group.", at_least=1),
)

_OFFSETS = (
    Option("offset.metadata.max.bytes", INT, 4096, "Largest note that may be kept with a committed offset."),
    Option(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often old committed offsets are looked for.",
        at_least=1,
    ),
    Option(
        "offsets.retention.minutes", INT, 10_080, "Age at which offsets of an empty group are forgotten.", at_least=1
    ),
)

# In force when the topic is created, which is when the first client asks for a coordinator.
_INTERNAL_TOPICS = (
    Option(
        "offsets.topic.num.partitions", INT, 50, "Partitions of the topic that keeps committed offsets.", at_least=1
    ),
    # Kafka refuses to create it with fewer brokers than that; here it gets as many replicas as there are brokers.
    Option(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "Replicas of the topic that keeps committed offsets, if there are so many brokers.",
        at_least=1,
    ),
    Option(
        "offsets.topic.segment.bytes",
        INT,
        100 * _MIB,
        "Size of a segment of the topic that keeps committed offsets.",
        at_least=LEAST_SEGMENT_BYTES,
    ),
    Option(
        "transaction.state.log.num.partitions", INT, 50, "Partitions of the topic that keeps transactions.", at_least=1
    ),
    Option(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "Replicas of the topic that keeps transactions, if there are so many brokers.",
        at_least=1,
    ),
    Option(
        "transaction.state.log.min.isr", INT, 2, "min.insync.replicas of the topic that keeps transactions.", at_least=1
    ),
    Option(
        "transaction.state.log.segment.bytes",
        INT,
        100 * _MIB,
        "Size of a segment of the topic that keeps transactions.",
        at_least=LEAST_SEGMENT_BYTES,
    ),
)

_TRANSACTIONS = (
    Option(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        "Longest time limit that a producer may ask for its transactions.",
        at_least=1,
    ),
    Option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "At the latest so long after its time limit a transaction is aborted, whatever becomes of the clock.",
        at_least=1,
    ),
    Option(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        "Age at which an unused transactional id is forgotten.",
        at_least=1,
    ),
    Option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        "How often unused transactional ids are looked for.",
        at_least=1,
    ),
    Option(
        "transaction.two.phase.commit.enable",
        BOOL,
        True,
        "Let producers prepare a transaction and decide later, without a limit of time (Kafka's is false).",
    ),
)

BROKER_OPTIONS = {
    option.name: option
    for option in (
        *_NODE,
        *_LISTENERS,
        *_SOCKETS,
        *_REQUESTS,
        *_LOG,
        *_CLASSIC_GROUPS,
        *COMPACTION_OPTIONS,
        *CONSUMER_GROUP_OPTIONS,
        *_OFFSETS,
        *_INTERNAL_TOPICS,
        *_TRANSACTIONS,
    )
}
