"""Every table there is, and random messages of any of them."""

from __future__ import annotations

from random import Random
from typing import Any

from klamm.core.errors import ErrorCode
from klamm.wire import Struct, request_type, response_type, versions_of
from klamm.wire.layout import Layout, Slot, layout_of
from klamm.wire.messages import APIS, consumer_protocol, coordinator, headers

INTEGERS = {"int8": (-(1 << 7), 1 << 7), "int16": (-(1 << 15), 1 << 15), "int32": (-(1 << 31), 1 << 31)}
INTEGERS |= {"int64": (-(1 << 63), 1 << 63), "uint16": (0, 1 << 16), "uint32": (0, 1 << 32)}
ERROR_CODES = [int(code) for code in ErrorCode]
TEXT = "abcxyz-._0189 äßéλЖ漢字🦆"


def all_messages() -> list[type[Struct]]:
    found: list[type[Struct]] = []
    for key in APIS:
        found += [request_type(key), response_type(key)]
    for module in (coordinator, consumer_protocol, headers):
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Struct) and value.__versions__
        ]
    return found


def all_versions() -> list[tuple[type[Struct], int]]:
    return [(message, version) for message in all_messages() for version in versions_of(message)]


def random_message(rng: Random, message: type[Struct], version: int) -> Struct:
    """A message whose fields all hold something, as far as this version has them."""
    return _struct(rng, layout_of(message, version), 3)


def _struct(rng: Random, layout: Layout, room: int) -> Struct:
    values = {slot.name: _value(rng, slot, room) for slot in layout.fields}
    values |= {slot.name: _value(rng, slot, room) for slot in layout.tagged if rng.random() < 0.6}
    return layout.cls(**values)


def _value(rng: Random, slot: Slot, room: int) -> Any:
    if slot.nullable and rng.random() < 0.25:
        return None
    if slot.kind == "struct":
        assert slot.parts is not None
        return _struct(rng, slot.parts, room)
    if slot.kind == "array":
        assert slot.element is not None
        plain = slot.element.kind not in ("struct", "array")
        count = rng.choice([8, 9, 127, 200]) if plain and rng.random() < 0.04 else rng.randint(0, room)
        return [_value(rng, slot.element, max(1, room - 1)) for _ in range(count)]
    return _plain(rng, slot)


def _plain(rng: Random, slot: Slot) -> Any:
    kind, name = slot.kind, slot.name
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice([0.0, -1.5, 1e300, rng.random()])
    if kind == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if kind == "string":
        return "".join(rng.choices(TEXT, k=_length(rng)))
    if kind in ("bytes", "records"):
        return rng.randbytes(_length(rng))
    if name.endswith("error_code"):
        return rng.choice(ERROR_CODES)
    if "time" in name or name.endswith("_ms"):  # what the oracle's dates can say
        return rng.randrange(1 << 31 if kind == "int32" else 1 << 40)
    low, high = INTEGERS[kind]
    return rng.choice([low, high - 1, 0, max(low, -1), 1, rng.randrange(low, high)])


def _length(rng: Random) -> int:
    """Around the sizes where a varint takes one byte more, now and then."""
    return rng.choice([126, 127, 128, 300]) if rng.random() < 0.05 else rng.randint(0, 12)
