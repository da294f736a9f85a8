"""Making the bytes of keys and values.

A serializer is any function that gives bytes: `Producer(..., value_serializer=lambda text: text.encode())`. One that
has to know more, as those do that register schemas, is an object with a method `serialize` instead, which also gets the
topic and a list of headers, to which it may add; if it has a coroutine method `prepare`, that is awaited first with the
topic and all that is to be serialized, so that whatever it needs can be looked up at once. None stays null: no
serializer is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from klamm.client.errors import ClientError
from klamm.records.decoding import Headers

HeaderList: TypeAlias = list[tuple[str, bytes | None]]
AnyHeaders: TypeAlias = Headers | Mapping[str, bytes | None]


@runtime_checkable
class Serializer(Protocol):
    def serialize(self, data: Any, *, topic: str, headers: HeaderList, is_key: bool) -> bytes: ...


AnySerializer: TypeAlias = Callable[[Any], bytes] | Serializer
_Write: TypeAlias = Callable[[Any, str, HeaderList], bytes]


class Serializing:
    """Both serializers of a producer."""

    def __init__(self, key: AnySerializer | None, value: AnySerializer | None) -> None:
        self._key = _writer(key, is_key=True)
        self._value = _writer(value, is_key=False)
        self._prepare_key = getattr(key, "prepare", None)
        self._prepare_value = getattr(value, "prepare", None)

    @classmethod
    def of(cls, key: AnySerializer | None, value: AnySerializer | None) -> Serializing | None:
        return None if key is None and value is None else cls(key, value)

    async def one(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        """The key, the value and the headers of a record as they are sent."""
        await self._prepare(topic, [key], [value])
        return self._write(topic, key, value, headers)

    async def many(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], headers: Sequence[AnyHeaders] | None
    ) -> tuple[Sequence[Any] | None, Sequence[Any], Sequence[Headers]]:
        await self._prepare(topic, keys or (), values)
        every_key = [None] * len(values) if keys is None else keys
        every_header = [()] * len(values) if headers is None else headers
        rows = [self._write(topic, *row) for row in zip(every_key, values, every_header, strict=True)]
        made = [row[0] for row in rows]
        return (None if keys is None else made), [row[1] for row in rows], [row[2] for row in rows]

    async def _prepare(self, topic: str, keys: Sequence[Any], values: Sequence[Any]) -> None:
        if self._prepare_key is not None:
            await self._prepare_key(topic, keys)
        if self._prepare_value is not None:
            await self._prepare_value(topic, values)

    def _write(self, topic: str, key: Any, value: Any, headers: AnyHeaders) -> tuple[Any, Any, Headers]:
        growing = list(headers.items() if isinstance(headers, Mapping) else headers)
        what = "key"
        try:
            if key is not None and self._key is not None:
                key = self._key(key, topic, growing)
            what = "value"
            if value is not None and self._value is not None:
                value = self._value(value, topic, growing)
        except Exception as reason:
            error = ClientError(f"{topic}: a {what} cannot be serialized: {reason!r}.")
            error.topic = topic
            raise error from reason
        return key, value, tuple(growing)


def _writer(given: AnySerializer | None, *, is_key: bool) -> _Write | None:
    if given is None:
        return None
    if isinstance(given, Serializer):
        full = given.serialize
        return lambda data, topic, headers: full(data, topic=topic, headers=headers, is_key=is_key)
    plain = given
    return lambda data, topic, headers: plain(data)
