"""The options of one broker: the table's defaults with layers of given values on top.

Immutable: a dynamic change makes a new `Options` with `overlay`. Reading is a dict lookup, still the hot path keeps
what it needs in attributes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from klamm.core.options.brokers import BROKER_OPTIONS
from klamm.core.options.option import Option, OptionError, Value


class Source(IntEnum):
    """Where a value was set; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5


_DEFAULTS: dict[str, Value] = {name: option.default for name, option in BROKER_OPTIONS.items()}


class Options:
    __slots__ = ("_given", "_values", "derived", "warnings")

    warnings: tuple[str, ...]
    """What a person should be told once: unknown names, options without effect."""

    def __init__(self, values: dict[str, Value], given: dict[str, Source], warnings: tuple[str, ...] = ()) -> None:
        self._values = values
        self._given = given
        self.derived: dict[str, object] = {}  # a memo for what others compute from these options; they never change
        self.warnings = warnings

    @classmethod
    def from_mapping(cls, given: Mapping[str, object] | None = None, *, strict: bool = True) -> Options:
        """Options set at start. An unknown name is an error if `strict` (--set), else a warning (a file, which may
        be Kafka's own)."""
        return cls(_DEFAULTS, {}).overlay(given or {}, strict=strict)

    def overlay(self, given: Mapping[str, object], source: Source = Source.STATIC, *, strict: bool = True) -> Options:
        """These options with others on top."""
        values = dict(self._values)
        sources = dict(self._given)
        warnings: list[str] = []
        problems: list[str] = []
        for name, text in given.items():
            option = BROKER_OPTIONS.get(name)
            if option is None:
                if strict:
                    problems.append(unknown_name(name, BROKER_OPTIONS, "broker option"))
                else:
                    # Kafka's own file is full of names that are none here: a hint only where it looks like a slip.
                    warnings.append(f"ignored: {unknown_name(name, BROKER_OPTIONS, 'broker option', cutoff=0.9)}")
                continue
            if not option.honoured:
                warnings.append(f"{name} is known but has no effect in Klamm")
            try:
                values[name] = option.parse(text)
                sources[name] = source
            except OptionError as error:
                problems.extend(error.problems)
        if "compact" in str(given.get("log.cleanup.policy", "")):
            warnings.append("log.cleanup.policy=compact: this version does not compact; such topics are kept whole")
        made = Options(values, sources, self.warnings + tuple(warnings))
        problems.extend(_contradictions(made))
        if problems:
            raise OptionError(*problems)
        return made

    def get(self, name: str) -> Value:
        return self._values[name]

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
        shown = (f"{n}={'[hidden]' if BROKER_OPTIONS[n].sensitive else v!r}" for n, v in self.given().items())
        return f"Options({', '.join(shown)})"


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
    return problems


def unknown_name(name: str, table: Mapping[str, Option], noun: str, cutoff: float = 0.6) -> str:
    """A sentence that says a name is not known, with the nearest one that is."""
    import difflib  # only ever needed to word a mistake

    near = difflib.get_close_matches(name, table, n=1, cutoff=cutoff)
    return f"{name} is not a {noun}" + (f"; did you mean {near[0]}?" if near else "")
