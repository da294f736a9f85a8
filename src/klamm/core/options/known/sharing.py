"""Options of Kafka without effect here: share groups and transactions."""

from __future__ import annotations

from klamm.core.options.known.entry import ANY_TIME, INT, LIST, SHORT, STRING, idle

OPTIONS = (
    idle(
        "group.share.assignment.interval.ms",
        INT,
        1000,
        "Shortest time between two assignments of a share group.",
        0,
        update=ANY_TIME,
    ),
    idle("group.share.assignors", LIST, ("simple",), "How partitions are shared out in share groups."),
    idle("group.share.delivery.count.limit", INT, 5, "How often a record is handed out before it is given up.", 2, 10),
    idle("group.share.heartbeat.interval.ms", INT, 5000, "How often members of share groups report.", 1),
    idle(
        "group.share.initialize.retry.interval.ms",
        INT,
        30_000,
        "Pause before setting up the state of a share group is tried again.",
        1,
        internal=True,
    ),
    idle(
        "group.share.max.assignment.interval.ms",
        INT,
        15_000,
        "Most that a group may set for share.assignment.interval.ms.",
        0,
    ),
    idle(
        "group.share.max.delivery.count.limit",
        INT,
        10,
        "Most that a group may set for share.delivery.count.limit.",
        5,
        25,
    ),
    idle(
        "group.share.max.heartbeat.interval.ms",
        INT,
        15_000,
        "Most that a group may set for share.heartbeat.interval.ms.",
        1,
    ),
    idle(
        "group.share.max.partition.max.record.locks",
        INT,
        4000,
        "Most that a group may set for share.partition.max.record.locks.",
        2000,
        10_000,
    ),
    idle(
        "group.share.max.record.lock.duration.ms",
        INT,
        60_000,
        "Most that a group may set for share.record.lock.duration.ms.",
        30_000,
        3_600_000,
    ),
    idle(
        "group.share.max.session.timeout.ms", INT, 60_000, "Most that a group may set for share.session.timeout.ms.", 1
    ),
    idle("group.share.max.share.sessions", INT, 2000, "Most share sessions of a broker.", 1),
    idle("group.share.max.size", INT, 200, "Most members of a share group.", 1, 1000),
    idle(
        "group.share.min.assignment.interval.ms",
        INT,
        0,
        "Least that a group may set for share.assignment.interval.ms.",
        0,
    ),
    idle(
        "group.share.min.delivery.count.limit",
        INT,
        2,
        "Least that a group may set for share.delivery.count.limit.",
        2,
        5,
    ),
    idle(
        "group.share.min.heartbeat.interval.ms",
        INT,
        5000,
        "Least that a group may set for share.heartbeat.interval.ms.",
        1,
    ),
    idle(
        "group.share.min.partition.max.record.locks",
        INT,
        100,
        "Least that a group may set for share.partition.max.record.locks.",
        100,
        2000,
    ),
    idle(
        "group.share.min.record.lock.duration.ms",
        INT,
        15_000,
        "Least that a group may set for share.record.lock.duration.ms.",
        1000,
        30_000,
    ),
    idle(
        "group.share.min.session.timeout.ms", INT, 45_000, "Least that a group may set for share.session.timeout.ms.", 1
    ),
    idle(
        "group.share.partition.max.record.locks",
        INT,
        2000,
        "Records of a partition that may be handed out at a time.",
        100,
        10_000,
    ),
    idle(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "The class that keeps the state of share groups.",
        internal=True,
    ),
    idle(
        "group.share.record.lock.duration.ms",
        INT,
        30_000,
        "How long a record that was handed out is kept for its consumer.",
        1000,
        3_600_000,
    ),
    idle(
        "group.share.session.timeout.ms",
        INT,
        45_000,
        "A member of a share group that has not reported for so long is out.",
        1,
    ),
    idle(
        "share.coordinator.append.linger.ms",
        INT,
        -1,
        "How long the share coordinator gathers writes; -1: as long as it is busy.",
        -1,
    ),
    idle(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "Largest buffer that the share coordinator keeps for its next write.",
        524_288,
        update=ANY_TIME,
    ),
    idle(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        300_000,
        "How often idle partitions of share groups get a snapshot.",
        1,
        internal=True,
    ),
    idle(
        "share.coordinator.load.buffer.size",
        INT,
        5_242_880,
        "Bytes read at a time when the share coordinator loads its state.",
        1,
    ),
    idle(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "Changes of share state before a new snapshot.",
        0,
        500,
    ),
    idle(
        "share.coordinator.state.topic.compression.codec", INT, 0, "Number of the codec in which share state is stored."
    ),
    idle(
        "share.coordinator.state.topic.min.isr", SHORT, 2, "min.insync.replicas of the topic that keeps share state.", 1
    ),
    idle("share.coordinator.state.topic.num.partitions", INT, 50, "Partitions of the topic that keeps share state.", 1),
    idle(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        300_000,
        "How often old share state is cut off.",
        1,
        internal=True,
    ),
    idle(
        "share.coordinator.state.topic.replication.factor", SHORT, 3, "Replicas of the topic that keeps share state.", 1
    ),
    idle(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        104_857_600,
        "Size of a segment of the topic that keeps share state.",
        1,
    ),
    idle("share.coordinator.threads", INT, 1, "Threads of the share coordinator.", 1),
    idle(
        "share.coordinator.write.timeout.ms", INT, 5000, "How long a write of share state may wait for its replicas.", 1
    ),
    idle(
        "transaction.state.log.load.buffer.size",
        INT,
        5_242_880,
        "Bytes read at a time when a coordinator loads transactions.",
        1,
    ),
)
