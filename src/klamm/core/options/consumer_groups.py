"""The broker's options for groups that use the consumer protocol (KIP-848), and what must hold between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.core.options.option import INT_MAX, Kind, Option, Update, Value

_INT = Kind.INT

CONSUMER_GROUP_OPTIONS = (
    Option(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "How partitions may be shared out in consumer groups; the first is the default.",
        choices=("uniform", "range"),  # Kafka also takes classes of one's own
        check=lambda names: None if names else "must name one at least",
    ),
    Option(
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        "A member of a consumer group that has not reported for so long is out.",
        at_least=1,
    ),
    Option(
        "group.consumer.min.session.timeout.ms",
        _INT,
        45_000,
        "Least that a group may set for consumer.session.timeout.ms.",
        at_least=1,
    ),
    Option(
        "group.consumer.max.session.timeout.ms",
        _INT,
        60_000,
        "Most that a group may set for consumer.session.timeout.ms.",
        at_least=1,
    ),
    Option(
        "group.consumer.heartbeat.interval.ms", _INT, 5000, "How often members of consumer groups report.", at_least=1
    ),
    Option(
        "group.consumer.min.heartbeat.interval.ms",
        _INT,
        5000,
        "Least that a group may set for consumer.heartbeat.interval.ms.",
        at_least=1,
    ),
    Option(
        "group.consumer.max.heartbeat.interval.ms",
        _INT,
        15_000,
        "Most that a group may set for consumer.heartbeat.interval.ms.",
        at_least=1,
    ),
    Option(
        "group.consumer.assignment.interval.ms",
        _INT,
        1000,
        "Shortest time between two assignments of a consumer group.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    ),
    Option(
        "group.consumer.min.assignment.interval.ms",
        _INT,
        0,
        "Least that a group may set for consumer.assignment.interval.ms.",
        at_least=0,
    ),
    Option(
        "group.consumer.max.assignment.interval.ms",
        _INT,
        15_000,
        "Most that a group may set for consumer.assignment.interval.ms.",
        at_least=0,
    ),
    Option("group.consumer.max.size", _INT, INT_MAX, "Most members of a consumer group.", at_least=1),
    Option(
        "group.consumer.regex.refresh.interval.ms",
        _INT,
        600_000,
        "How often subscriptions by pattern are matched anew.",
        at_least=10_000,
        internal=True,
    ),
)


def contradictions(value_of: Callable[[str], Value], is_set: Callable[[str], bool]) -> Iterator[str]:
    """What no single option's bounds can say. The defaults agree with each other."""
    if not any(is_set(option.name) for option in CONSUMER_GROUP_OPTIONS):
        return

    def number(name: str) -> int:
        value = value_of(name)
        assert isinstance(value, int)
        return value

    for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        least, value, most = (number(f"group.consumer.{bound}{name}") for bound in ("min.", "", "max."))
        if not least <= value <= most:
            yield (
                f"group.consumer.{name}={value} is not between group.consumer.min.{name}={least} and "
                f"group.consumer.max.{name}={most}"
            )
    beat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if number(session) <= number(beat):
        yield f"{session}={number(session)} must be more than {beat}={number(beat)}"
