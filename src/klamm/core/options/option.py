"""What one option is: a name, a type, a default, its bounds; and how text becomes a value of it.

Every message of an `OptionError` names the option, the value that was given and what would be allowed, because it is
all that a person sees. Values are plain ints, floats, bools, strings and tuples of strings; None means "not set".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | float | bool | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOL = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_RANGES = {Kind.INT: (-(2**31), INT_MAX), Kind.LONG: (-(2**63), LONG_MAX)}
_NOUNS = {Kind.INT: "a whole number", Kind.LONG: "a whole number", Kind.DOUBLE: "a number", Kind.BOOL: "true or false"}


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
    """One line of the table. `honoured` is False for what is accepted but changes nothing here (yet)."""

    __slots__ = ("at_least", "at_most", "choices", "default", "doc", "dynamic", "honoured", "kind", "name", "synonyms")

    def __init__(
        self,
        name: str,
        kind: Kind,
        default: Value,
        doc: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        choices: Sequence[str] = (),
        dynamic: bool = False,
        honoured: bool = True,
        synonyms: Sequence[Synonym] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.doc = doc
        self.at_least = at_least
        self.at_most = at_most
        self.choices = tuple(choices)
        self.dynamic = dynamic
        self.honoured = honoured
        self.synonyms = tuple(synonyms)

    def __repr__(self) -> str:
        return f"Option({self.name!r})"

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, given: object) -> Value:
        """The value that `given` (text, or already a value from Python code) stands for; else OptionError."""
        if given is None:
            if self.default is None:
                return None
            raise OptionError(f"{self.name} needs a value")
        value = self._convert(given)
        self._check_range(value, given)
        self._check_choices(value)
        return value

    def _convert(self, given: object) -> Value:
        kind = self.kind
        if kind is Kind.LIST:
            items = given.split(",") if isinstance(given, str) else given
            if not isinstance(items, (list, tuple)):
                raise self._refusal(given)
            return tuple(text for item in items if (text := str(item).strip()))
        if kind in (Kind.STRING, Kind.PASSWORD):
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
        if least is not None and value < least:
            raise OptionError(f"{self.name}={given} is too small: the least is {least}")
        if most is not None and value > most:
            raise OptionError(f"{self.name}={given} is too large: the most is {most}")

    def _check_choices(self, value: Value) -> None:
        if not self.choices:
            return
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if item not in self.choices:
                raise OptionError(f"{self.name}={self._shown(item)} is not one of {', '.join(self.choices)}")
        if len(set(items)) != len(items):
            raise OptionError(f"{self.name}={self._shown(','.join(map(str, items)))} names something twice")

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
    return str(value)
