"""What other implementations make of the same message: `kio` and `kafka-python`."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import pkgutil
import uuid
import warnings
from functools import cache
from typing import Any

from kio import index as kio_index
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field, get_field_tag, is_optional
from kio.static.constants import EntityType

from klamm.wire import Request, Response, Struct
from klamm.wire.schema import in_range

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
OTHER_SCHEMAS = {
    "RequestHeader": ("request_header", EntityType.header),
    "ResponseHeader": ("response_header", EntityType.header),
    "ConsumerProtocolSubscription": ("consumer_protocol_subscription", EntityType.data),
    "ConsumerProtocolAssignment": ("consumer_protocol_assignment", EntityType.data),
}


# kio: built from our message, field by field, then encoded


@cache
def kio_type(message: type[Struct], version: int) -> type[Any] | None:
    """kio's class for a message, or None if it has none."""
    try:
        if issubclass(message, Request):
            return kio_index.load_request_schema(message.__api_key__, version)
        if issubclass(message, Response):
            return kio_index.load_response_schema(message.__api_key__, version)
        if message.__name__ in OTHER_SCHEMAS:
            name, kind = OTHER_SCHEMAS[message.__name__]
            return kio_index.load_entity_schema(name, version, kind)
    except kio_index.KioIndexError:
        pass
    return None


def kio_bytes(message: Struct, version: int) -> bytes:
    """The message as kio encodes it."""
    entity_type = kio_type(type(message), version)
    assert entity_type is not None
    with io.BytesIO() as buffer:
        entity_writer(entity_type)(buffer, kio_entity(entity_type, message, version))
        return buffer.getvalue()


def kio_entity(entity_type: type[Any], message: Struct, version: int) -> Any:
    ours = [name for name, field in message.__fields__.items() if in_range(version, field.versions)]
    theirs = dataclasses.fields(entity_type)
    values = {}
    for name, field in zip(ours, theirs, strict=True):
        assert field.name in (name, name.removesuffix("_ms")), (entity_type, name, field.name)
        values[field.name] = _value(field, getattr(message, name), version)
    return entity_type(**values)


def _value(field: dataclasses.Field[Any], value: Any, version: int) -> Any:
    kind = classify_field(field)
    kafka_type = field.metadata.get("kafka_type")
    if value is None:
        return None
    if kind.is_array:
        return tuple(_item(field, kind.type_, item, version) for item in value)
    if kafka_type == "datetime_i64" and value == -1 and is_optional(field):
        return None
    if kafka_type == "uuid" and get_field_tag(field) is not None and not any(value):
        return None  # kio's default for a tagged uuid
    return _item(field, kind.type_, value, version)


def _item(field: dataclasses.Field[Any], item_type: type[Any], value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return kio_entity(item_type, value, version)
    match field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return uuid.UUID(bytes=value)
    return value


# kafka-python: reads our bytes and writes them again


@cache
def _kafka_python_types() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # how it reads its schemas
        package = importlib.import_module("kafka.protocol")
        for module in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
            if ".old" not in module.name and "generate" not in module.name:
                importlib.import_module(module.name)
    found: dict[str, Any] = {}
    todo: list[Any] = [package.api_message.ApiMessage, package.api_data.ApiData]
    while todo:
        for cls in todo.pop().__subclasses__():
            todo.append(cls)
            found.setdefault(cls.__name__, cls)
    # It decodes every ApiVersionsResponse with an error, and any that does not fit, as version 0.
    del found["ApiVersionsResponse"]
    return found


def kafka_python_again(message: type[Struct], version: int, data: bytes) -> bytes | None:
    """The same message after kafka-python decoded and encoded it, or None if it does not know it."""
    theirs = _kafka_python_types().get(message.__name__)
    if theirs is None or not theirs.min_version <= version <= theirs.max_version:
        return None
    if not issubclass(message, Request | Response):  # takes the version from the data
        prefix = version.to_bytes(2, "big")
        again: bytes = theirs.decode(prefix + data).encode()
        return again.removeprefix(prefix)
    found = theirs.decode(data, version=version)
    found._header = None
    return bytes(found.encode(version=version))
