"""Making something of the bytes of keys and values.

A deserializer is any function of bytes: `Consumer(..., value_deserializer=json.loads)`. One that has to know more, as
those do that look up schemas, is an object with a method `deserialize` instead, which also gets the topic and the
headers; if it has a coroutine method `prepare`, that is awaited first with all records that came together, so that
whatever they need can be loaded at once. Null stays None: no deserializer is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from klamm.client.errors import ClientError
from klamm.records.consuming import ConsumerRecord
from klamm.records.decoding import Headers


@runtime_checkable
class Deserializer(Protocol):
    def deserialize(self, data: bytes, *, topic: str, headers: Headers, is_key: bool) -> Any: ...


AnyDeserializer: TypeAlias = Callable[[bytes], Any] | Deserializer
_Read: TypeAlias = Callable[[bytes, ConsumerRecord], Any]


class BadValue(ClientError):
    """A deserializer failed. The consumer stays in front of the record; `seek` behind it to leave it out."""

    def __init__(self, record: ConsumerRecord, is_key: bool, reason: Exception) -> None:
        what = "key" if is_key else "value"
        super().__init__(
            f"The {what} at offset {record.offset} of {record.topic}, partition {record.partition}, "
            f"cannot be deserialized: {reason!r}.",
            "Seek behind it to go on without it.",
        )
        self.record = record
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset


class Deserializing:
    """Both deserializers of a consumer, as one function over lists of records."""

    def __init__(self, key: AnyDeserializer | None, value: AnyDeserializer | None) -> None:
        self._key = _reader(key, is_key=True)
        self._value = _reader(value, is_key=False)
        self._prepare = [
            prepare for one in (key, value) if (prepare := getattr(one, "prepare", None)) is not None
        ]  # fmt: skip

    @classmethod
    def of(cls, key: AnyDeserializer | None, value: AnyDeserializer | None) -> Deserializing | None:
        return None if key is None and value is None else cls(key, value)

    @property
    def has_to_prepare(self) -> bool:
        return bool(self._prepare)

    async def prepare(self, records: Sequence[ConsumerRecord]) -> None:
        for prepare in self._prepare:
            await prepare(records)

    def __call__(self, records: list[ConsumerRecord]) -> tuple[list[ConsumerRecord], ClientError | None]:
        """Those in front of the first that fails, and its error."""
        made: list[ConsumerRecord] = []
        new, read_key, read_value = tuple.__new__, self._key, self._value
        for record in records:
            topic, partition, offset, timestamp, kind, key, value, headers, epoch = record
            is_key = True
            try:
                if key is not None and read_key is not None:
                    key = read_key(key, record)
                is_key = False
                if value is not None and read_value is not None:
                    value = read_value(value, record)
            except Exception as error:  # noqa: BLE001 - whatever somebody's function raises
                return made, BadValue(record, is_key, error)
            made.append(new(ConsumerRecord, (topic, partition, offset, timestamp, kind, key, value, headers, epoch)))
        return made, None


def _reader(given: AnyDeserializer | None, *, is_key: bool) -> _Read | None:
    if given is None:
        return None
    if isinstance(given, Deserializer):
        full = given.deserialize
        return lambda data, record: full(data, topic=record.topic, headers=record.headers, is_key=is_key)
    plain = given
    return lambda data, record: plain(data)
