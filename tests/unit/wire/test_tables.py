"""Every table is where its name says, and means what its annotations say."""

from __future__ import annotations

import re
import sys
import typing
from pathlib import Path
from types import NoneType

import pytest
from wire_messages import all_messages, all_versions

from klamm.core.env import Buffer, FileRange
from klamm.wire import Struct, decode, encode, messages, request_type, response_type, versions_of
from klamm.wire.messages import APIS, NEVER, first_flexible
from klamm.wire.schema import Field, in_range

CLIENT_KEYS = {*range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, 75}
BROKER_KEYS = {56, 67}

PYTHON_TYPES = {"bool": bool, "float64": float, "uuid": bytes, "string": str, "bytes": bytes, "struct": Struct}
PYTHON_TYPES |= dict.fromkeys(("int8", "int16", "int32", "int64", "uint16", "uint32"), int)


def test_there_is_a_table_for_every_api_in_scope() -> None:
    assert set(APIS) == CLIENT_KEYS | BROKER_KEYS


@pytest.mark.parametrize("key", APIS)
def test_module_key_name_and_flexible_version_agree(key: int) -> None:
    module, name, flexible = APIS[key]
    request, response = request_type(key), response_type(key)
    assert module == f"k{key:02}_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    assert (request.__name__, response.__name__) == (name + "Request", name + "Response")
    assert request.__module__ == response.__module__ == f"klamm.wire.messages.{module}"
    assert request.__api_key__ == response.__api_key__ == key
    assert versions_of(request) == versions_of(response)
    for message in (request, response):
        assert message.__flexible__ == ("" if flexible == NEVER else f"{flexible}+")
    doc = sys.modules[request.__module__].__doc__
    assert doc is not None
    assert doc.startswith(f"{name} (key {key}): ")


def test_every_module_of_the_folder_is_in_the_list() -> None:
    folder = Path(str(messages.__file__)).parent
    assert {path.stem for path in folder.glob("k*.py")} == {module for module, _, _ in APIS.values()}


def test_a_key_without_a_table_has_no_types_and_is_never_flexible() -> None:
    with pytest.raises(KeyError):
        request_type(4)
    with pytest.raises(KeyError):
        response_type(4)
    assert first_flexible(4) == NEVER


def structs_of(message: type[Struct]) -> list[type[Struct]]:
    found = [message]
    for field in message.__fields__.values():
        if isinstance(field.of, type):
            found += structs_of(field.of)
    return found


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_annotations_agree_with_the_fields(message: type[Struct]) -> None:
    for struct in structs_of(message):
        names = {**vars(sys.modules[struct.__module__]), "Records": Buffer | FileRange}
        for name, field in struct.__fields__.items():
            expected = expected_type(field)
            if field.nullable or field.default is None:
                expected = expected | NoneType
            assert eval(struct.__annotations__[name], names) == expected, (struct, name)


def expected_type(field: Field) -> typing.Any:
    if field.kind == "struct":
        return field.of
    if field.kind == "array":
        return list[field.of] if isinstance(field.of, type) else list[expected_type(field.of())]  # type: ignore[misc]
    return Buffer | FileRange if field.kind == "records" else PYTHON_TYPES[field.kind]


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_every_field_is_in_some_version_and_tags_are_distinct(message: type[Struct]) -> None:
    for struct in structs_of(message):
        tags = [field.tag for field in struct.__fields__.values() if field.tag is not None]
        assert len(tags) == len(set(tags))
        for name, field in struct.__fields__.items():
            assert any(in_range(version, field.versions) for version in versions_of(message)), (struct, name)


def test_every_message_with_all_defaults_comes_back() -> None:
    for message, version in all_versions():
        assert decode(message, encode(message(), version), version) == message()
