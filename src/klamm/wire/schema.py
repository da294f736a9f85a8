"""The language in which message tables are written: `Struct` classes whose fields say type, versions and default.

    class TopicProduceData(Struct):
        name: str = string("0-12", ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

A table says what Kafka's definitions say and nothing else; `compiler` turns it into code when a version is first
used. Making a class must stay cheap, because a broker imports some sixty tables when it starts: no strings are
parsed and no code is generated here. Instances are plain slotted objects; all constructor arguments are keywords
and have Kafka's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform

if TYPE_CHECKING:
    from klamm.core.env import Buffer, FileRange

Records: TypeAlias = "Buffer | FileRange"
"""A records field: decoded as a memoryview into the frame, encoded from any buffer or a range of a file."""


class Field:
    """One field of a table, as written. Version ranges are text ("0+", "3-13", "4") until a version is compiled."""

    __slots__ = ("default", "flexible", "ignorable", "kind", "nullable", "of", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        default: Any,
        versions: str,
        *,
        of: Any = None,
        nullable: str = "",
        tag: int | None = None,
        tagged: str = "",
        ignorable: bool = False,
        flexible: str = "0+",
    ) -> None:
        self.kind = kind
        self.default = default
        self.versions = versions
        self.of = of
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged if tag is None else tagged or versions
        self.ignorable = ignorable
        self.flexible = flexible


# The specifiers. They return Any, so that a field reads `name: str = string()`. They are not declared as field
# specifiers of the dataclass transform: a type checker would then take a field without `default=` for a required one.


def boolean(versions: str = "0+", *, default: bool = False, **options: Any) -> Any:
    return Field("bool", default, versions, **options)


def int8(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("int8", default, versions, **options)


def int16(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("int16", default, versions, **options)


def int32(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("int32", default, versions, **options)


def int64(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("int64", default, versions, **options)


def uint16(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("uint16", default, versions, **options)


def uint32(versions: str = "0+", *, default: int = 0, **options: Any) -> Any:
    return Field("uint32", default, versions, **options)


def float64(versions: str = "0+", *, default: float = 0.0, **options: Any) -> Any:
    return Field("float64", default, versions, **options)


def uuid(versions: str = "0+", *, default: bytes = bytes(16), **options: Any) -> Any:
    """16 raw bytes."""
    return Field("uuid", default, versions, **options)


def string(versions: str = "0+", *, default: str | None = "", **options: Any) -> Any:
    return Field("string", default, versions, **options)


def binary(versions: str = "0+", *, default: bytes | None = b"", **options: Any) -> Any:
    """Kafka's `bytes`; decoded as a copy."""
    return Field("bytes", default, versions, **options)


def record_data(versions: str = "0+", *, default: None = None, **options: Any) -> Any:
    """Kafka's `records`; never copied (see `Records`)."""
    return Field("records", default, versions, **options)


def array(of: type[Struct] | Callable[..., Any], versions: str = "0+", **options: Any) -> Any:
    """A list of structs, or of a plain type given by its specifier: `array(int32)`."""
    return Field("array", options.pop("default", ()), versions, of=of, **options)


def struct(of: type[Struct], versions: str = "0+", **options: Any) -> Any:
    return Field("struct", options.pop("default", ()), versions, of=of, **options)


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Collects the fields of a class body into `__fields__` and gives the class slots for them."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: str = "",
        flexible: str = "",
    ) -> StructMeta:
        fields = {name: value for name, value in namespace.items() if type(value) is Field}
        for field in fields:
            del namespace[field]
        namespace["__slots__"] = tuple(fields)
        namespace["__fields__"] = fields
        namespace["__encoders__"] = {}
        namespace["__decoders__"] = {}
        namespace["__default__"] = None
        if versions:
            namespace["__api_key__"] = key
            namespace["__versions__"] = versions
            namespace["__flexible__"] = flexible
        return super().__new__(mcls, name, bases, namespace)


class Struct(metaclass=StructMeta):
    """A message or a part of one.

    The dunder names below cannot clash with Kafka's field names. Equality is by value, so instances do not hash.
    """

    __fields__: ClassVar[dict[str, Field]]
    __encoders__: ClassVar[dict[int, Any]]  # by version, what has been compiled so far; see codec.py
    __decoders__: ClassVar[dict[int, Any]]
    __default__: ClassVar[Struct | None]  # see defaults.py
    __api_key__: ClassVar[int] = -1
    __versions__: ClassVar[str] = ""  # of a whole message; a part has none of its own
    __flexible__: ClassVar[str] = ""
    __hash__: ClassVar[None]  # type: ignore[assignment]

    if not TYPE_CHECKING:  # the type checker derives the constructor from the fields

        def __init__(self, **values: Any) -> None:
            """Stands in for the real constructor, which is generated when the first instance is made."""
            from klamm.wire.compiler import compile_init

            cls = type(self)
            cls.__init__ = compile_init(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        # Shared defaults are instances of a frozen subclass (compiler.shared_default), hence not `type() is type()`.
        if not isinstance(other, Struct) or other.__fields__ is not self.__fields__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__fields__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__fields__)
        return f"{type(self).__name__}({values})"


class Request(Struct):
    """A whole request: `class XRequest(Request, key=..., versions="0-3", flexible="2+")`."""


class Response(Struct):
    """A whole response, with the key of its request."""


def in_range(version: int, spec: str) -> bool:
    """Whether a version is in a range as tables write them: "3+", "3-13", "4", or "none" / "" for no version."""
    if not spec or spec == "none":
        return False
    if spec.endswith("+"):
        return version >= int(spec[:-1])
    low, _, high = spec.partition("-")
    return int(low) <= version <= int(high or low)


def versions_of(message: type[Struct]) -> range:
    """The versions a message is defined for."""
    low, _, high = message.__versions__.partition("-")
    return range(int(low), int(high or low) + 1)


def is_flexible(message: type[Struct], version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    return in_range(version, message.__flexible__)
