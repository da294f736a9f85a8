"""YAML in which every value knows where it stands.

PyYAML's `compose` gives nodes with marks; no object is ever made of what a tag says. `Fields` takes a mapping apart by
the names it may have, and writes down what is wrong instead of raising, so that all mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar, cast

import yaml

from klamm.spark.pipelines.mistakes import Mistake, Place

L = TypeVar("L", bound=str)

MAX_BYTES: Final = 1 << 20
"""No pipeline.yml is as large as that; PyYAML needs a minute for ten times of it."""

_KINDS: Final = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
    "map": "a mapping",
    "seq": "a list",
}
_MERGE: Final = "Merge keys are not understood here. Repeat the values, or use an alias (*name) for a whole value."


class Notes:
    """The mistakes of one reading."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def wrong(self, place: Place, text: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(place, text, hint))


class Value:
    """A node of the file."""

    def __init__(self, node: yaml.Node, file: str) -> None:
        self.node = node
        self.file = file

    @property
    def place(self) -> Place:
        mark = self.node.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    @property
    def kind(self) -> str:
        """What it is, in words: `_KINDS`, or the tag that somebody gave."""
        short = self.node.tag.removeprefix("tag:yaml.org,2002:")
        return _KINDS.get(short, f"of the type {short}")

    @property
    def is_nothing(self) -> bool:
        return self.node.tag == "tag:yaml.org,2002:null"

    @property
    def text(self) -> str | None:
        """None if it is no text."""
        is_text = isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:str"
        return cast(str, self.node.value) if is_text else None

    @property
    def flag(self) -> bool | None:
        if self.node.tag != "tag:yaml.org,2002:bool":
            return None
        return yaml.SafeLoader.bool_values[self.node.value.lower()]

    @property
    def setting(self) -> str | None:
        """Text, a number or a flag, as Kafka and Spark write them in their options; None if it is none of them."""
        if (flag := self.flag) is not None:
            return "true" if flag else "false"
        if self.kind == "a number" and isinstance(self.node, yaml.ScalarNode):
            return cast(str, self.node.value).replace("_", "")
        return self.text

    def entries(self) -> Iterator[tuple[Value, Value]]:
        if isinstance(self.node, yaml.MappingNode):
            for key, value in self.node.value:
                yield Value(key, self.file), Value(value, self.file)

    def items(self) -> list[Value]:
        return [Value(one, self.file) for one in self.node.value] if isinstance(self.node, yaml.SequenceNode) else []


def read(content: bytes, file: str, notes: Notes) -> Value | None:
    """The one document of a file; None if it has none, or one that cannot be read, which is noted."""
    if len(content) > MAX_BYTES:
        notes.wrong(Place(file), f"The file is {len(content):,} bytes large, and {MAX_BYTES:,} are the most.")
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        notes.wrong(Place(file, before.count(b"\n") + 1), "This is not text in UTF-8.", "Save the file in UTF-8.")
        return None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file) if mark is None else Place(file, mark.line + 1, mark.column + 1)
        notes.wrong(place, f"This is not YAML: {_said(error)}.", _yaml_hint(text, place))
        return None
    except yaml.reader.ReaderError as error:
        before_it = text[: error.position]
        place = Place(file, before_it.count("\n") + 1, len(before_it) - before_it.rfind("\n"))
        notes.wrong(place, f"The character {error.character!r} is not allowed in YAML.", "Remove it.")
        return None
    except (RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        notes.wrong(Place(file), f"This is not YAML that can be read: {'it is nested too deep' if deep else error}.")
        return None
    return None if node is None else Value(node, file)


def _said(error: yaml.MarkedYAMLError) -> str:
    context = f"{error.context}: " if error.context else ""
    return f"{context}{error.problem or 'it cannot be read'}".replace("\n", " ")


def _yaml_hint(text: str, place: Place) -> str:
    lines = text.split("\n")
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "Indent with blanks, not with tabs."
    if re.search(r":\s+\S.*:\s", line):
        return "A text with a colon in it has to stand in quotes."
    return "Look at the indentation and the quotes, here and in the line before."


def nearest(word: str, names: Collection[str]) -> str:
    """ "Did you mean ...?", if one is close; else what there is."""
    found = get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.6)
    if found:
        return f"Did you mean {next(name for name in names if name.lower() == found[0])}?"
    return f"There is {listed(names)}." if names else ""


def listed(names: Collection[str], last: str = "and") -> str:
    *some, end = names
    return f"{', '.join(some)} {last} {end}" if some else end


class Fields:
    """The entries of a mapping. What is asked for and not there is None (and noted, if it has to be there)."""

    def __init__(self, value: Value, what: str, known: Sequence[str], notes: Notes, place: Place | None = None) -> None:
        """`what` is how messages call it: `the input views`; `place` where its name stands."""
        self.what = what
        self.place = place or value.place
        self.is_mapping = isinstance(value.node, yaml.MappingNode)
        self.places: dict[str, Place] = {}
        self._notes = notes
        self._found: dict[str, Value] = {}
        self._bad: set[str] = set()  # given, and noted already
        at = keys(value)
        for name, item in named(value, what, notes).items():
            if name in known:
                self._found[name] = item
                self.places[name] = item.place
            else:
                hint = _MERGE if name == "<<" else nearest(name, known)
                notes.wrong(at[name], f"{upper(what)} takes no {name!r}.", hint)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def wrong(self, name: str, text: str, hint: str = "") -> bool:
        """Note what is wrong with this entry. It is False, for those who keep count."""
        self._bad.add(name)
        self._notes.wrong(self.places.get(name, self.place), text, hint)
        return False

    def is_wrong(self, name: str) -> bool:
        """Whether something was noted for this entry: who goes on with a default need not complain of it."""
        return name in self._bad

    def value(self, name: str) -> Value | None:
        found = self._found.get(name)
        return None if found is None or found.is_nothing else found

    def need(self, name: str, hint: str) -> None:
        """To be called for what has to be there."""
        if self.value(name) is None and name not in self._bad:
            self.wrong(name, f"{upper(self.what)} has no {name}.", hint)

    def fill(self, name: str, hint: str) -> None:
        """The same for a mapping, which has to have something in it."""
        value = self.value(name)
        if value is not None and isinstance(value.node, yaml.MappingNode) and not value.node.value:
            self.wrong(name, f"{name} is empty.", hint)
        self.need(name, hint)

    def text(self, name: str, what: str) -> str | None:
        """Text that is not empty; `what` says what it is: `the name of a topic`."""
        value = self.value(name)
        if value is None:
            return None
        found = value.text
        if found is None:
            quotes = " Write it in quotes." if value.setting is not None or value.kind == "a date" else ""
            self.wrong(name, f"{name} is {value.kind}, and should be {what}.", quotes.strip())
        elif not found.strip():
            self.wrong(name, f"{name} is empty, and should be {what}.")
        else:
            return found.strip()
        return None

    def parsed(self, name: str, what: str, parse: Callable[[str], str]) -> str | None:
        """Text that `parse` takes; it raises ValueError with what to do."""
        found = self.text(name, what)
        if found is None:
            return None
        try:
            return parse(found)
        except ValueError as error:
            self.wrong(name, f"{name} is {found!r}, and should be {what}.", str(error))
            return None

    def word(self, name: str, words: Sequence[L], default: L) -> L:
        found = self.text(name, listed(words, "or"))
        if found is None:
            return default
        for each in words:
            if each == found.lower():
                return each
        self.wrong(name, f"{name} is {found!r}, and should be {listed(words, 'or')}.", _did_you_mean(found, words))
        return default

    def settings(self, name: str) -> dict[str, str]:
        """Options by their names, as text."""
        value = self.value(name)
        if value is None:
            return {}
        found: dict[str, str] = {}
        for key, item in named(value, name, self._notes).items():
            setting = item.setting
            if setting is None:
                more = ' For nothing, write "".' if item.is_nothing else ""
                hint = f"It should be text, a number, or true or false.{more}"
                self._notes.wrong(item.place, f"The option {key} in {name} is {item.kind}.", hint)
            else:
                found[key] = setting
                self.places[f"{name}.{key}"] = item.place
        return found

    def texts(self, name: str, what: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        value = self.value(name)
        if value is None:
            return ()
        items = value.items() if isinstance(value.node, yaml.SequenceNode) else [value]
        texts = [item.text for item in items]
        if not all(texts):
            self.wrong(name, f"{name} should be {what}, or a list of such.")
            return ()
        return tuple(text for text in texts if text)


def named(value: Value, what: str, notes: Notes) -> Mapping[str, Value]:
    """The entries of a mapping by name, in their order. What is no mapping is noted and has none."""
    if not isinstance(value.node, yaml.MappingNode):
        if not value.is_nothing:
            notes.wrong(value.place, f"{upper(what)} is {value.kind}, and should be names with values (name: value).")
        return {}
    found: dict[str, Value] = {}
    places: dict[str, Place] = {}
    for key, item in value.entries():
        name = str(key.node.value) if isinstance(key.node, yaml.ScalarNode) else ""
        if not name:
            notes.wrong(key.place, f"A name in {what} is {key.kind}, and should be text.")
        elif name in found:
            first = places[name].line
            notes.wrong(key.place, f"{name} is there twice in {what}; first in line {first}.", "Remove one of them.")
        else:
            found[name], places[name] = item, key.place
    return found


def keys(value: Value) -> dict[str, Place]:
    """Where the names of a mapping stand; of one that is there twice, the first."""
    pairs = [(key.node.value, key.place) for key, _ in value.entries() if isinstance(key.node, yaml.ScalarNode)]
    return {str(name): place for name, place in reversed(pairs)}


def _did_you_mean(word: str, words: Sequence[str]) -> str:
    found = get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return f"Did you mean {found[0]}?" if found else ""


def upper(what: str) -> str:
    """For the beginning of a sentence. A key of the file stays as it is written there."""
    return what[:1].upper() + what[1:] if " " in what else what
