"""Modules, keys, tables and ApiVersions say the same."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

from klamm.apis import registry
from klamm.apis.api import Api, Versions
from klamm.apis.rare import RARE
from klamm.core.errors import ErrorCode
from klamm.wire import versions_of
from klamm.wire.messages import APIS, request_type
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest

MODULES = registry.module_names()


@pytest.mark.parametrize("name", MODULES)
def test_module_name_key_and_table_agree(name: str) -> None:
    api: Api = importlib.import_module(f"klamm.apis.{name}").API
    assert name[1:3] == f"{api.key:02}"
    assert APIS[api.key][0] == name
    assert api.request is request_type(api.key)
    assert api.request.__api_key__ == api.key
    assert api.name == APIS[api.key][1]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_serves_versions_that_its_table_has_and_advertises_what_it_serves(name: str) -> None:
    api: Api = importlib.import_module(f"klamm.apis.{name}").API
    assert all(version in versions_of(api.request) for version in range(api.versions.first, api.versions.last + 1))
    assert api.advertised.first <= api.versions.first and api.advertised.last == api.versions.last


def test_only_produce_advertises_what_it_does_not_serve() -> None:
    different = [api.name for api in registry.load() if api.advertised != api.versions]
    assert different == ["Produce"]


KAFKA_4_3 = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
}
"""Clients take a broker for a version of Kafka by what it advertises; so these are Kafka's ranges, none narrower."""


def test_the_advertised_versions_are_those_of_kafka() -> None:
    served = {api.key: tuple(api.advertised) for api in registry.load()}
    assert served == {key: KAFKA_4_3[key] for key in served}


def test_what_a_client_needs_is_there() -> None:
    served = {api.key for api in registry.load()}
    assert {0, 1, 2, 3, 10, 18, 19, 20, 22, 23, 37} <= served


@pytest.mark.parametrize("name", list(RARE))
def test_an_api_that_is_imported_later_says_the_same_before(name: str) -> None:
    api: Api = importlib.import_module(f"klamm.apis.{name}").API
    rare = registry.RareApi(name, RARE[name])
    assert (rare.key, rare.name, rare.versions, rare.advertised) == (api.key, api.name, api.versions, api.advertised)
    assert rare.request is api.request
    assert rare.shortcut is api.shortcut is None


def test_a_start_imports_no_rare_api() -> None:
    code = "import sys; from klamm.apis import registry; registry.load(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "klamm.apis.k00_produce" in loaded
    assert not [name for name in loaded if name.rpartition(".")[2] in RARE]


def test_two_modules_for_one_key_are_a_mistake() -> None:
    api = next(iter(registry.load()))
    with pytest.raises(AssertionError, match="two modules"):
        registry.Registry([api, api])


def test_versions_are_a_range() -> None:
    assert 3 in Versions(3, 5) and 5 in Versions(3, 5)
    assert 2 not in Versions(3, 5) and 6 not in Versions(3, 5) and "3" not in Versions(3, 5)


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_is_exactly_what_is_registered(node: Any, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="tester", client_software_version="1.0")
    response = await node.call(request, version)
    assert response.error_code == ErrorCode.NONE
    answered = [(a.api_key, a.min_version, a.max_version) for a in response.api_keys]
    assert answered == [(api.key, *api.advertised) for api in node.apis]
    assert {key for key, *_ in answered} == {api.key for api in registry.load()}


@pytest.mark.parametrize("name", MODULES)
def test_every_api_has_an_error_answer_for_an_empty_request(name: str) -> None:
    from klamm import wire

    api: Api = importlib.import_module(f"klamm.apis.{name}").API
    assert api.on_error is not None
    for version in range(api.versions.first, api.versions.last + 1):
        response = api.on_error(api.request(), version, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert response is None or wire.encode(response, version)  # type: ignore[arg-type]
