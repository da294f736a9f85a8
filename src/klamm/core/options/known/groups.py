"""Options of Kafka without effect here: groups of consumers and of stream processors."""

from __future__ import annotations

from klamm.core.options.known.entry import ANY_TIME, INT, LIST, STRING, idle
from klamm.core.options.option import INT_MAX

OPTIONS = (
    idle("offsets.commit.timeout.ms", INT, 5000, "How long a commit may wait for its replicas.", 1),
    idle(
        "offsets.load.buffer.size",
        INT,
        5_242_880,
        "Bytes read at a time when a coordinator loads committed offsets.",
        1,
    ),
    idle("offsets.topic.compression.codec", INT, 0, "Number of the codec in which committed offsets are stored."),
    idle(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "How long a coordinator gathers writes; -1: as long as it is busy.",
        -1,
    ),
    idle("group.coordinator.background.threads", INT, 2, "Threads for long work of the coordinator.", 1),
    idle(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        1_048_588,
        "Largest buffer that a coordinator keeps for its next write.",
        524_288,
        update=ANY_TIME,
    ),
    idle(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        "The kinds of groups that are served.",
        choices=("consumer", "classic", "share", "streams"),
    ),
    idle("group.coordinator.threads", INT, 4, "Threads of the group coordinator.", 1),
    idle(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether groups may change between the old and the new protocol.",
    ),
    idle(
        "group.streams.assignment.interval.ms",
        INT,
        1000,
        "Shortest time between two assignments of a streams group.",
        0,
        update=ANY_TIME,
    ),
    idle("group.streams.heartbeat.interval.ms", INT, 5000, "How often members of streams groups report.", 1),
    idle(
        "group.streams.initial.rebalance.delay.ms", INT, 3000, "How long a new streams group waits for more members.", 0
    ),
    idle(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "Most that a group may set for streams.assignment.interval.ms.",
        0,
    ),
    idle(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "Most that a group may set for streams.heartbeat.interval.ms.",
        1,
    ),
    idle(
        "group.streams.max.session.timeout.ms",
        INT,
        60_000,
        "Most that a group may set for streams.session.timeout.ms.",
        1,
    ),
    idle("group.streams.max.size", INT, INT_MAX, "Most members of a streams group.", 1),
    idle(
        "group.streams.max.standby.replicas", INT, 2, "Most that a group may set for streams.num.standby.replicas.", 0
    ),
    idle(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "Least that a group may set for streams.assignment.interval.ms.",
        0,
    ),
    idle(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5000,
        "Least that a group may set for streams.heartbeat.interval.ms.",
        1,
    ),
    idle(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "Least that a group may set for streams.session.timeout.ms.",
        1,
    ),
    idle("group.streams.num.standby.replicas", INT, 0, "Spare copies of the state of each task of a streams group.", 0),
    idle(
        "group.streams.session.timeout.ms",
        INT,
        45_000,
        "A member of a streams group that has not reported for so long is out.",
        1,
    ),
)
