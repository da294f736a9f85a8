"""The options of a group (KIP-848, KIP-932, KIP-1071), the broker options behind them, and their bounds, which are
broker options too. Those of share and streams groups are kept and checked, and nothing uses them yet.

Loaded only when somebody asks for or changes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from klamm.core.options.option import Kind, Option, OptionError, Synonym, Value
from klamm.core.options.options import Options, find_option, unknown_name

_OFFSET_RESETS = ("latest", "earliest")


def _of_broker(name: str) -> Option:
    """The broker's `group.NAME` for one group."""
    broker = find_option(f"group.{name}")
    assert broker is not None
    return Option(
        name,
        broker.kind,
        broker.default,
        broker.doc,
        at_least=broker.at_least,
        honoured=broker.honoured,
        synonyms=(Synonym(broker.name),),
    )


def _offset_reset(value: Value) -> str | None:
    text = str(value)
    if text in _OFFSET_RESETS or (text.startswith("by_duration:P") and len(text) > len("by_duration:P")):
        return None
    return "is not latest, earliest or by_duration:PnDTnHnMn.nS"


_TABLE = (
    *(
        _of_broker(f"{kind}.{name}")
        for kind in ("consumer", "share", "streams")
        for name in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
    ),
    _of_broker("share.delivery.count.limit"),
    _of_broker("share.partition.max.record.locks"),
    _of_broker("share.record.lock.duration.ms"),
    _of_broker("streams.initial.rebalance.delay.ms"),
    _of_broker("streams.num.standby.replicas"),
    Option(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        "Where a share group begins that has no offset yet.",
        check=_offset_reset,
        honoured=False,
    ),
    Option(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether a share group sees records of transactions that are not committed.",
        choices=("read_committed", "read_uncommitted"),
        honoured=False,
    ),
    Option(
        "share.renew.acknowledge.enable",
        Kind.BOOL,
        True,
        "Let consumers of a share group keep a record for longer.",
        honoured=False,
    ),
)

GROUP_OPTIONS = {option.name: option for option in sorted(_TABLE, key=lambda option: option.name)}


def check_group_configs(configs: Mapping[str, str], options: Options) -> dict[str, Value]:
    """The parsed values; OptionError if they cannot be accepted with this broker's bounds."""
    values: dict[str, Value] = {}
    problems: list[str] = []
    for name, text in configs.items():
        option = GROUP_OPTIONS.get(name)
        if option is None:
            problems.append(unknown_name(name, GROUP_OPTIONS, "group option"))
            continue
        try:
            values[name] = option.parse(text)
        except OptionError as error:
            problems.extend(error.problems)
    problems.extend(_out_of_bounds(values, options))
    if problems:
        raise OptionError(*problems)
    return values


def _out_of_bounds(values: Mapping[str, Value], options: Options) -> Iterator[str]:
    for name, value in values.items():
        kind, _, rest = name.partition(".")
        for bound, words in (("min", "below"), ("max", "above")):
            limit_name = f"group.{kind}.{bound}.{rest.removeprefix('num.')}"
            if find_option(limit_name) is None:
                continue
            limit = options.value_of(limit_name)
            assert isinstance(value, int) and isinstance(limit, int)
            if value < limit if bound == "min" else value > limit:
                yield f"{name}={value} is {words} {limit_name}, which is {limit}"
    for kind in ("consumer", "share", "streams"):
        names = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if any(name in values for name in names):
            beat, session = (values[n] if n in values else options.value_of(f"group.{n}") for n in names)
            if isinstance(beat, int) and isinstance(session, int) and session <= beat:
                yield f"{names[1]}={session} must be more than {names[0]}={beat}"
