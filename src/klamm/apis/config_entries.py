"""Options as DescribeConfigs shows them: value, where it comes from, and everything that it hides (the synonyms).

In one thing this is not Kafka: where only log.retention.hours is set, Kafka calls a topic's retention.ms a default and
shows no synonym. Here the first synonym of a topic's option is always the one that decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import NamedTuple

from klamm.core.options import Option, Options, Source, Synonym, Value, find_option, resolve, text_of
from klamm.wire.messages.k32_describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

_UNKNOWN_TYPE = 0
_NODE_IDS = ("node.id", "broker.id")  # two names for one number
_BROKER_SOURCES = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT, Source.STATIC)

_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)


class Wanted(NamedTuple):
    """What the request asks for beside the values."""

    synonyms: bool
    documentation: bool


def topic_entry(name: str, configs: Mapping[str, str], options: Options, want: Wanted) -> DescribeConfigsResourceResult:
    found = resolve(name, configs, options)
    synonyms = list(_behind(found.option.synonyms, options, found.option.sensitive))
    if name in configs:
        synonyms.insert(0, _synonym(name, found.value, Source.TOPIC, found.option.sensitive))
    return _entry(found.option, found.value, found.source, synonyms, want)


def group_entry(
    option: Option, configs: Mapping[str, str], options: Options, want: Wanted
) -> DescribeConfigsResourceResult:
    own = configs.get(option.name)
    synonyms = list(_behind(option.synonyms, options, False))
    if own is not None:
        value: Value = option.parse(own)
        synonyms.insert(0, _synonym(option.name, value, Source.GROUP, False))
    else:
        value = options.value_of(option.synonyms[0].name) if option.synonyms else option.default
    if not option.synonyms:
        synonyms.append(_synonym(option.name, option.default, Source.DEFAULT, False))
    return _entry(option, value, Source(synonyms[0].source), synonyms, want)


def client_metrics_entry(option: Option, configs: Mapping[str, str], want: Wanted) -> DescribeConfigsResourceResult:
    own = configs.get(option.name)
    if own is None:
        return _entry(option, option.default, Source.DEFAULT, [], want)
    value = option.parse(own)
    return _entry(
        option, value, Source.CLIENT_METRICS, [_synonym(option.name, value, Source.CLIENT_METRICS, False)], want
    )


def broker_names(options: Options) -> list[str]:
    """Every option there is, and what a file has beside them; internal ones only where they are set."""
    from klamm.core.options.brokers import BROKER_OPTIONS
    from klamm.core.options.known import KNOWN_OPTIONS

    shown = {name for table in (BROKER_OPTIONS, KNOWN_OPTIONS) for name, option in table.items() if not option.internal}
    return sorted(shown | set(options.given()) | set(options.unknown))


def broker_entry(name: str, options: Options, want: Wanted) -> DescribeConfigsResourceResult:
    """As it stands by itself: where one in another unit decides, this one is not set, and says so."""
    option = find_option(name)
    if option is None:
        return _stranger(name, want)
    names = next((names for names in _UNITS if name in names), (name,))
    behind = _behind([Synonym(other) for other in names], options, option.sensitive)
    synonyms = list(dropwhile(lambda synonym: synonym.name != name, behind))
    source = Source(synonyms[0].source) if synonyms else Source.DEFAULT
    value = options.node_id if name in _NODE_IDS else options.value_of(name)
    return _entry(option, value, source, synonyms, want, read_only=not option.dynamic)


def default_entry(name: str, options: Options, want: Wanted) -> DescribeConfigsResourceResult:
    """An option that was set for all brokers, whatever this one makes of it."""
    option = find_option(name)
    assert option is not None, name  # what is in a layer was known when it got there
    value, source = options.layers[Source.DYNAMIC_DEFAULT][name], Source.DYNAMIC_DEFAULT
    return _entry(option, value, source, [_synonym(name, value, source, option.sensitive)], want)


def _stranger(name: str, want: Wanted) -> DescribeConfigsResourceResult:
    """A name in the file that no option has. It may be a plugin's password for all we know, so the value is hidden."""
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=True,
        config_source=Source.STATIC,
        is_sensitive=True,
        synonyms=[_synonym(name, None, Source.STATIC, True)] if want.synonyms else [],
        config_type=_UNKNOWN_TYPE,
        documentation=None,
    )


def _behind(synonyms: Sequence[Synonym], options: Options, sensitive: bool) -> Iterator[DescribeConfigsSynonym]:
    """Broker options by where they were set, the one that decides first; defaults last."""
    for source in _BROKER_SOURCES:
        layer = options.layers.get(source, {})
        for synonym in synonyms:
            if synonym.name in layer:
                yield _synonym(synonym.name, layer[synonym.name], source, sensitive)
    for synonym in synonyms:
        option = find_option(synonym.name)
        if option is not None and option.default is not None:
            yield _synonym(synonym.name, option.default, Source.DEFAULT, sensitive)


def _synonym(name: str, value: Value, source: Source, sensitive: bool) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=None if sensitive else text_of(value), source=source)


def _entry(
    option: Option,
    value: Value,
    source: Source,
    synonyms: list[DescribeConfigsSynonym],
    want: Wanted,
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=option.name,
        value=None if option.sensitive else text_of(value),
        read_only=read_only,
        config_source=source,
        is_sensitive=option.sensitive,
        synonyms=synonyms if want.synonyms else [],
        config_type=option.kind,
        documentation=documentation(option) if want.documentation else None,
    )


def documentation(option: Option) -> str:
    return option.doc if option.honoured else f"{option.doc} (Known from Kafka; without effect in Klamm.)"
