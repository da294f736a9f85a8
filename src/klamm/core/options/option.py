"""What one option is: a name, a type, a default, its bounds; and how text becomes a value of it.

Every message of an `OptionError` names the option, the value that was given and what would be allowed, because it is
all that a person sees. Values are plain ints, floats, bools, strings and tuples of strings; None means "not set".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOL = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """When a broker option may be changed; the words are those of Kafka's documentation."""

    READ_ONLY = "read-only"  # at a start
    PER_BROKER = "per-broker"  # while it runs, for each broker by itself
    CLUSTER_WIDE = "cluster-wide"  # while it runs, for one broker or for all


_RANGES = {Kind.SHORT: (-(2**15), 2**15 - 1), Kind.INT: (-(2**31), INT_MAX), Kind.LONG: (-(2**63), LONG_MAX)}
_NOUNS = {
    Kind.SHORT: "a whole number",
    Kind.INT: "a whole number",
    Kind.LONG: "a whole number",
    Kind.DOUBLE: "a number",
    Kind.BOOL: "true or false",
}


class OptionError(ValueError):
    """One or more values that cannot be used; `problems` has a sentence for each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Synonym(NamedTuple):
    """A broker option that stands in for a topic option; `factor` turns its unit into the topic option's."""

    name: str
    factor: int = 1


class Option:
    """One line of the table.

    `or_else` is a number that is allowed beside those within the bounds; `check` says what is wrong with a value that
    bounds and choices cannot judge. `honoured` is False for what is accepted but changes nothing here (yet).
    `internal` ones are not shown unless somebody has set them. `synonyms` (of an option of a topic or a group) are the
    broker options that stand in for it.
    """

    __slots__ = (
        "at_least",
        "at_most",
        "check",
        "choices",
        "default",
        "doc",
        "honoured",
        "internal",
        "kind",
        "name",
        "or_else",
        "synonyms",
        "update",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        default: Value,
        doc: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        or_else: int | None = None,
        choices: Sequence[str] = (),
        check: Callable[[Value], str | None] | None = None,
        update: Update = Update.READ_ONLY,
        honoured: bool = True,
        internal: bool = False,
        synonyms: Sequence[Synonym] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.doc = doc
        self.at_least = at_least
        self.at_most = at_most
        self.or_else = or_else
        self.choices = tuple(choices)
        self.check = check
        self.update = update
        self.honoured = honoured
        self.internal = internal
        self.synonyms = tuple(synonyms)

    def __repr__(self) -> str:
        return f"Option({self.name!r})"

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def dynamic(self) -> bool:
        """Whether it may be changed while the broker runs."""
        return self.update is not Update.READ_ONLY

    def parse(self, given: object) -> Value:
        """The value that `given` (text, or already a value from Python code) stands for; else OptionError."""
        if given is None:
            if self.default is None:
                return None
            raise OptionError(f"{self.name} needs a value")
        value = self._convert(given)
        self._check_range(value, given)
        self._check_choices(value)
        if self.check is not None and (problem := self.check(value)) is not None:
            raise OptionError(f"{self.name}={self._shown(given)} {problem}")
        return value

    def _convert(self, given: object) -> Value:
        kind = self.kind
        if kind is Kind.LIST:
            items = given.split(",") if isinstance(given, str) else given
            if not isinstance(items, (list, tuple)):
                raise self._refusal(given)
            # Said twice counts once, as Kafka has it since 4.2.
            return tuple(dict.fromkeys(text for item in items if (text := str(item).strip())))
        if kind in (Kind.STRING, Kind.CLASS, Kind.PASSWORD):
            return given if kind is Kind.PASSWORD and isinstance(given, str) else str(given).strip()
        if kind is Kind.BOOL:
            text = str(given).strip().lower()
            if text not in ("true", "false"):
                raise self._refusal(given)
            return text == "true"
        if isinstance(given, bool):
            raise self._refusal(given)
        try:
            if kind is Kind.DOUBLE:
                return float(str(given).strip())
            return given if isinstance(given, int) else parse_int(str(given))
        except ValueError:
            raise self._refusal(given) from None

    def _check_range(self, value: Value, given: object) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return
        low, high = _RANGES.get(self.kind, (None, None))
        least = self.at_least if self.at_least is not None else low
        most = self.at_most if self.at_most is not None else high
        if value != value:  # a NaN compares with nothing
            raise self._refusal(given)
        if value == self.or_else:
            return
        other = "" if self.or_else is None else f", or {self.or_else}"
        if least is not None and value < least:
            raise OptionError(f"{self.name}={given} is too small: the least is {least}{other}")
        if most is not None and value > most:
            raise OptionError(f"{self.name}={given} is too large: the most is {most}{other}")

    def _check_choices(self, value: Value) -> None:
        if not self.choices:
            return
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if item not in self.choices:
                raise OptionError(f"{self.name}={self._shown(item)} is not one of {', '.join(self.choices)}")

    def _shown(self, given: object) -> str:
        return "[hidden]" if self.sensitive else str(given)

    def _refusal(self, given: object) -> OptionError:
        return OptionError(f"{self.name}={self._shown(given)} is not {_NOUNS.get(self.kind, 'a list')}")


def parse_int(text: str) -> int:
    """Decimal digits with an optional sign; not what else `int()` takes (underscores, other scripts' digits)."""
    text = text.strip()
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def text_of(value: Value) -> str | None:
    """A value as DescribeConfigs and a properties file write it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")  # as Java writes it
    return str(value)
