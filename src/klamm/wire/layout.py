"""One version of a table, resolved: which fields are there, how each is encoded, what is left out.

Between the table as it is written (schema) and the code made from it (encoder, decoder). Pure data, made once per
(message, version) and dropped after compilation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.wire.errors import ProtocolError
from klamm.wire.schema import Field, Struct, in_range, is_flexible, versions_of

FIXED = {  # kind -> (struct format, bytes)
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


class Slot(NamedTuple):
    """A field in one version. `compact` is whether lengths are varints; `element` is what an array holds."""

    name: str
    kind: str
    nullable: bool
    compact: bool
    default: Any
    tag: int
    parts: Layout | None
    element: Slot | None


class Layout(NamedTuple):
    """A struct in one version: fields in wire order, tagged ones by tag, and those that this version lacks."""

    cls: type[Struct]
    flexible: bool
    fields: list[Slot]
    tagged: list[Slot]
    absent: list[tuple[str, Field]]


def layout_of(message: type[Struct], version: int) -> Layout:
    """The layout of a whole message; ProtocolError if it has no such version."""
    if not message.__versions__ or version not in versions_of(message):
        raise ProtocolError(f"{message.__name__} has no version {version}")
    return _layout(message, version, is_flexible(message, version))


def _layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    layout = Layout(cls, flexible, [], [], [])
    for name, field in cls.__fields__.items():
        if not in_range(version, field.versions):
            layout.absent.append((name, field))
        elif in_range(version, field.tagged):
            layout.tagged.append(_slot(name, field, version, flexible))
        else:
            layout.fields.append(_slot(name, field, version, flexible))
    layout.tagged.sort(key=lambda slot: slot.tag)
    assert len(layout.tagged) < 128, "the number of known tagged fields is written as one byte"
    return layout


def _slot(name: str, field: Field, version: int, flexible: bool) -> Slot:
    nullable = in_range(version, field.nullable)
    compact = flexible and field.flexible != "none"
    parts = element = None
    if field.kind == "struct":
        parts = _layout(field.of, version, flexible)
    elif field.kind == "array":
        if isinstance(field.of, type):
            element = Slot(name, "struct", False, compact, (), 0, _layout(field.of, version, flexible), None)
        else:
            element = _slot(name, field.of(), version, flexible)
        # The decoder bounds the number of elements by the bytes that are left, so each must take at least one.
        assert min_size(element) > 0, f"{name}: elements of an array must not be empty"
    return Slot(name, field.kind, nullable, compact, field.default, field.tag or 0, parts, element)


def min_size(slot: Slot) -> int:
    """The fewest bytes that a value can take."""
    if slot.kind in FIXED:
        return FIXED[slot.kind][1]
    if slot.kind == "struct":
        assert slot.parts is not None
        if slot.nullable:
            return 1
        return sum(min_size(field) for field in slot.parts.fields) + slot.parts.flexible
    if slot.compact:
        return 1
    return 2 if slot.kind == "string" else 4


def has_records(layout: Layout) -> bool:
    """Whether a records field is anywhere in it; such messages are decoded from the frame without a copy."""
    return any(
        slot.kind == "records"
        or (slot.parts is not None and has_records(slot.parts))
        or (slot.element is not None and slot.element.parts is not None and has_records(slot.element.parts))
        for slot in layout.fields + layout.tagged
    )
