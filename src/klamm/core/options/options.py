"""The options of one broker: the table's defaults with layers of given values on top.

Immutable: a dynamic change makes a new `Options`. Reading is a dict lookup, still the hot path keeps what it needs in
attributes of its own. Options without effect are kept like the others, so that DescribeConfigs can show them, but only
while somebody has set them: `known`, which has them all, is not loaded before one of them is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from klamm.core.options.brokers import BROKER_OPTIONS
from klamm.core.options.consumer_groups import contradictions
from klamm.core.options.option import Option, OptionError, Value


class Source(IntEnum):
    """Where a value was set; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


LISTENER_PREFIX = "listener.name."

_DEFAULTS: dict[str, Value] = {name: option.default for name, option in BROKER_OPTIONS.items()}
_NOTHING: dict[str, Value] = {}


def find_option(name: str) -> Option | None:
    """A broker's option, be it one without effect; also as `listener.name.LISTENER.[MECHANISM.]OPTION`, which is how
    Kafka sets some of them for one listener alone. None if there is no such option."""
    option = BROKER_OPTIONS.get(name)
    if option is not None:
        return option
    from klamm.core.options.known import KNOWN_OPTIONS  # only where one of them is met

    if name.startswith(LISTENER_PREFIX):
        from klamm.core.options.known import for_listener

        return for_listener(name)
    return KNOWN_OPTIONS.get(name)


class Options:
    __slots__ = ("_given", "_values", "base", "derived", "layers", "unknown", "warnings")

    base: Options
    """The same without what was changed while the broker runs."""

    layers: Mapping[Source, Mapping[str, Value]]
    """What was set, by where it was set."""

    unknown: tuple[str, ...]
    """Names in a file that no option has."""

    warnings: tuple[str, ...]
    """What a person should be told once: unknown names, options without effect."""

    def __init__(
        self,
        values: dict[str, Value],
        given: dict[str, Source],
        layers: Mapping[Source, Mapping[str, Value]],
        unknown: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
        base: Options | None = None,
    ) -> None:
        self._values = values
        self._given = given
        self.layers = layers
        self.unknown = unknown
        self.warnings = warnings
        self.base = self if base is None else base
        self.derived: dict[str, object] = {}  # a memo for what others compute from these options; they never change

    @classmethod
    def from_mapping(cls, given: Mapping[str, object] | None = None, *, strict: bool = True) -> Options:
        """Options set at start. An unknown name is an error if `strict` (--set), else a warning (a file, which may
        be Kafka's own)."""
        return cls(_DEFAULTS, {}, {}).overlay(given or {}, strict=strict)

    def overlay(self, given: Mapping[str, object], source: Source = Source.STATIC, *, strict: bool = True) -> Options:
        """These options with others on top."""
        values = dict(self._values)
        sources = dict(self._given)
        layer = dict(self.layers.get(source, _NOTHING))
        unknown: list[str] = []
        idle: list[str] = []
        problems: list[str] = []
        for name, text in given.items():
            option = find_option(name)
            if option is None:
                unknown.append(name)
                continue
            if not option.honoured:
                idle.append(name)
            try:
                values[name] = layer[name] = option.parse(text)
                sources[name] = source
            except OptionError as error:
                problems.extend(error.problems)
        if strict:
            problems[:0] = [unknown_broker_option(name) for name in unknown]
            unknown = []
        warnings = _warnings(unknown, idle, given) if source is Source.STATIC else ()
        made = Options(
            values,
            sources,
            {**self.layers, source: layer},
            (*self.unknown, *unknown),
            self.warnings + warnings,
            None if source is Source.STATIC else self.base,
        )
        problems.extend(_contradictions(made))
        if problems:
            raise OptionError(*problems)
        return made

    def dynamic(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> tuple[Options, list[str]]:
        """These options with what was set while the broker runs, for all brokers and for this one; and what of it
        cannot be used. It was checked when it was set, but perhaps by another version."""
        made = self.base
        problems: list[str] = []
        for source, given in ((Source.DYNAMIC_DEFAULT, for_all), (Source.DYNAMIC_BROKER, for_this)):
            try:
                made = made.overlay(given, source)
            except OptionError:
                for name, text in given.items():
                    try:
                        made = made.overlay({name: text}, source)
                    except OptionError as error:
                        problems.extend(error.problems)
        return made, problems

    def get(self, name: str) -> Value:
        """KeyError for an option without effect that nobody has set."""
        return self._values[name]

    def value_of(self, name: str) -> Value:
        """The value in force of any option there is, be it one without effect."""
        if name in self._values:
            return self._values[name]
        option = find_option(name)
        assert option is not None, name
        return option.default

    def get_int(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def get_float(self, name: str) -> float:
        value = self._values[name]
        assert isinstance(value, float), name
        return value

    def get_str(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def get_optional_str(self, name: str) -> str | None:
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        assert isinstance(value, tuple), name
        return value

    def source(self, name: str) -> Source:
        return self._given.get(name, Source.DEFAULT)

    def is_set(self, name: str) -> bool:
        """Whether somebody set it to a value, be it the default."""
        return name in self._given and self._values[name] is not None

    def given(self) -> dict[str, Value]:
        """What differs from an empty file, by name."""
        return {name: self._values[name] for name in sorted(self._given)}

    @property
    def node_id(self) -> int:
        older = self.get_int("broker.id")
        return older if older >= 0 and not self.is_set("node.id") else self.get_int("node.id")

    @property
    def data_dir(self) -> str | None:
        """The data folder that was asked for, under either name."""
        folders = self.get_list("log.dirs")
        return folders[0] if folders else self.get_optional_str("log.dir")

    def connection_limits(self) -> dict[str, int]:
        """max.connections.per.ip.overrides as a table."""
        return dict(_connection_limit(text) for text in self.get_list("max.connections.per.ip.overrides"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._values == other._values and self._given == other._given

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={self._shown(name)}' for name in sorted(self._given))})"

    def _shown(self, name: str) -> str:
        option = find_option(name)
        return "[hidden]" if option is None or option.sensitive else repr(self._values[name])


def _connection_limit(text: str) -> tuple[str, int]:
    address, _, count = text.rpartition(":")
    if not address or not count.strip().isdigit():
        raise OptionError(f"max.connections.per.ip.overrides: {text!r} is not ADDRESS:COUNT")
    return address.strip().strip("[]"), int(count)


def _contradictions(options: Options) -> list[str]:
    """What no single option's bounds can say."""
    problems: list[str] = []
    older, newer = options.get_int("broker.id"), options.get_int("node.id")
    if older >= 0 and options.is_set("node.id") and older != newer:
        problems.append(f"node.id={newer} and broker.id={older} differ; give only node.id")
    if len(options.get_list("log.dirs")) > 1:
        problems.append(
            f"log.dirs={','.join(options.get_list('log.dirs'))} names several folders; Klamm keeps its data in one"
        )
    problems.extend(
        f"{name}=0 would delete everything at once; the least is 1, and -1 keeps everything"
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        if options.get(name) == 0
    )
    try:
        options.connection_limits()
    except OptionError as error:
        problems.extend(error.problems)
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    if options.is_set(least) or options.is_set(most):
        lags = options.value_of(least), options.value_of(most)
        if isinstance(lags[0], int) and isinstance(lags[1], int) and lags[0] > lags[1]:
            problems.append(f"{least}={lags[0]} is more than {most}={lags[1]}")
    problems.extend(contradictions(options.value_of, options.is_set))
    return problems


def _warnings(unknown: list[str], idle: list[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """Kafka's own file is full of options that do nothing here: they share one line."""
    lines = [f"ignored: {unknown_broker_option(name, cutoff=0.9)}" for name in unknown]
    if idle:
        lines.append(f"known, but without effect in Klamm: {', '.join(idle)}")
    if given.get("authorizer.class.name"):
        lines.append("authorizer.class.name is set, but nothing is authorized yet: everybody may do everything")
    return tuple(lines)


def unknown_name(name: str, table: Iterable[str], noun: str, cutoff: float = 0.6) -> str:
    """A sentence that says a name is not known, with the nearest one that is."""
    import difflib  # only ever needed to word a mistake

    near = difflib.get_close_matches(name, table, n=1, cutoff=cutoff)
    return f"{name} is not a {noun}" + (f"; did you mean {near[0]}?" if near else "")


def unknown_broker_option(name: str, cutoff: float = 0.6) -> str:
    from klamm.core.options.known import KNOWN_OPTIONS

    return unknown_name(name, (*BROKER_OPTIONS, *KNOWN_OPTIONS), "broker option", cutoff)
