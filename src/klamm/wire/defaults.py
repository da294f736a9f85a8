"""Default values of struct fields: one shared, frozen instance where that is safe."""

from __future__ import annotations

from typing import Any, NoReturn

from klamm.wire.schema import Struct, StructMeta


def is_shared(cls: type[Struct]) -> bool:
    """Whether all default values of this struct can share one instance: it has nothing in it that can be changed.

    Each partition of a fetch response has three such structs that nearly always hold their defaults; making them
    anew cost a third of building the response.
    """
    return all(
        field.default is None or (field.kind != "array" and (field.kind != "struct" or is_shared(field.of)))
        for field in cls.__fields__.values()
    )


def default_of(cls: type[Struct]) -> Struct:
    """The struct with all its defaults; frozen if it is shared. Made once."""
    made = cls.__default__
    if made is None:
        if is_shared(cls):
            frozen: Any = StructMeta(cls.__name__, (cls,), {"__module__": cls.__module__})
            frozen.__fields__ = cls.__fields__
            made = frozen()
            frozen.__setattr__ = _frozen
        else:
            made = cls()
        cls.__default__ = made
    return made


def _frozen(self: Struct, name: str, value: object) -> NoReturn:
    raise AttributeError(f"a default {type(self).__name__} is shared: set the field to a new one instead")
