"""AlterClientQuotas and DescribeClientQuotas."""

from __future__ import annotations

import math
from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller import quotas as commands
from klamm.core.errors import BrokerError, ErrorCode
from klamm.wire.messages.k48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from klamm.wire.messages.k49_alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

ALICE = {"user": "alice"}
EVERYBODY: dict[str, str | None] = {"user": None}
RATE = "producer_byte_rate"


def change(entity: dict[str, str | None], **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


async def alter(node: Any, *entries: EntryData, version: int = 1, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await node.call(request, version)
    assert all(bool(e.error_code) == bool(e.error_message) for e in response.entries)
    return [entry.error_code for entry in response.entries]


async def describe(node: Any, *components: tuple[Any, ...], strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    response = await node.call(request, version)
    if response.error_code:
        assert response.error_message and response.entries is None
        return response.error_code
    return [
        ({e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values})
        for entry in response.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_told_of_and_removed(node: Any, version: int) -> None:
    assert await alter(node, change(ALICE, producer_byte_rate=1024, request_percentage=12.5), version=version) == [0]
    assert await describe(node, version=version) == [(ALICE, {RATE: 1024.0, "request_percentage": 12.5})]
    assert await alter(node, change(ALICE, producer_byte_rate=None), version=version) == [0]
    assert await describe(node, version=version) == [(ALICE, {"request_percentage": 12.5})]
    assert await alter(node, change(ALICE, request_percentage=None), version=version) == [0]
    assert await describe(node, version=version) == []


async def test_validate_only_changes_nothing(node: Any) -> None:
    assert await alter(node, change(ALICE, producer_byte_rate=1), change({}), validate_only=True) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert await describe(node) == []


async def test_what_is_so_already_is_not_written_again(node: Any) -> None:
    await alter(node, change(ALICE, producer_byte_rate=1))
    offset = node.publisher.image.offset
    assert await alter(node, change(ALICE, producer_byte_rate=1, consumer_byte_rate=None, nonsense=None)) == [0]
    assert node.publisher.image.offset == offset


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({}, RATE, 1),
        ({"group": "g"}, RATE, 1),
        ({"user": ""}, RATE, 1),
        ({"ip": "1.2.3.4", "user": "alice"}, "connection_creation_rate", 1),
        ({"ip": "nowhere"}, "connection_creation_rate", 1),
        ({"ip": "1.2.3.4"}, RATE, 1),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 2.0**31),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 1.5),
        (ALICE, "connection_creation_rate", 1),
        (ALICE, "no_such_rate", 1),
        (ALICE, RATE, -1),
        (ALICE, RATE, 0.0),
        (ALICE, RATE, 1.5),
        (ALICE, RATE, 1e30),
        (ALICE, "request_percentage", math.nan),
        (ALICE, "request_percentage", math.inf),
    ],
)
async def test_what_cannot_be_a_quota_is_refused_alone(
    node: Any, entity: dict[str, str | None], key: str, value: float
) -> None:
    assert await alter(node, change(entity, **{key: value}), change({"user": "bob"}, producer_byte_rate=1)) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert [entity for entity, _ in await describe(node)] == [{"user": "bob"}]


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", None])
async def test_quotas_for_addresses(node: Any, address: str | None) -> None:
    assert await alter(node, change({"ip": address}, connection_creation_rate=10)) == [0]
    assert await describe(node) == [({"ip": address}, {"connection_creation_rate": 10.0})]


async def test_nothing_is_named_twice(node: Any) -> None:
    twice = EntryData(entity=change(ALICE).entity, ops=[OpData(key=RATE, value=1.0), OpData(key=RATE, value=2.0)])
    assert await alter(node, twice) == [ErrorCode.INVALID_REQUEST]
    user = EntityData(entity_type="user", entity_name="alice")
    both = EntryData(
        entity=[user, EntityData(entity_type="user", entity_name="bob")], ops=[OpData(key=RATE, value=1.0)]
    )
    assert await alter(node, both) == [ErrorCode.INVALID_REQUEST]
    pair = {"user": "alice", "client-id": "x"}
    turned = {"client-id": "x", "user": "alice"}
    assert await alter(node, change(pair, producer_byte_rate=1), change(turned, producer_byte_rate=2)) == [
        ErrorCode.INVALID_REQUEST
    ]
    assert await describe(node) == []


async def test_a_request_is_bounded(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_CHANGES_PER_REQUEST", 1)
    with pytest.raises(BrokerError) as refused:
        await alter(node, change(ALICE, producer_byte_rate=1, consumer_byte_rate=1))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION


EXACT, DEFAULT, SPECIFIED = range(3)


async def test_filters(node: Any) -> None:
    entities: list[dict[str, str | None]] = [
        ALICE,
        EVERYBODY,
        {"user": "alice", "client-id": "app"},
        {"client-id": None, "user": "alice"},
        {"client-id": "app"},
    ]
    await alter(node, *(change(entity, producer_byte_rate=i + 1) for i, entity in enumerate(entities)))
    await alter(node, change({"ip": "1.2.3.4"}, connection_creation_rate=9))

    async def found(*components: tuple[Any, ...], strict: bool = False) -> list[int]:
        entries = await describe(node, *components, strict=strict)
        return sorted(int(value) for _, values in entries for value in values.values())

    assert await found() == [1, 2, 3, 4, 5, 9]
    assert await found(strict=True) == []
    assert await found(("user", EXACT, "alice")) == [1, 3, 4]
    assert await found(("user", EXACT, "alice"), strict=True) == [1]
    assert await found(("user", EXACT, "")) == []
    assert await found(("user", DEFAULT, None)) == [2]
    assert await found(("user", SPECIFIED, None)) == [1, 2, 3, 4]
    assert await found(("user", SPECIFIED, None), strict=True) == [1, 2]
    assert await found(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)) == [3, 4]
    assert await found(("user", EXACT, "alice"), ("client-id", DEFAULT, None)) == [4]
    assert await found(("client-id", EXACT, "app"), strict=True) == [5]
    assert await found(("ip", SPECIFIED, None)) == [9]


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, None)] * 2, ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, None), ("ip", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "g")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_filters_that_make_no_sense(node: Any, components: list[Any], error: ErrorCode) -> None:
    assert await describe(node, *components) == error


async def test_who_may_not_see_or_change_them(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
    assert await alter(node, change(ALICE, producer_byte_rate=1)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    node.broker.authorizer = tools.deny((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
    assert await describe(node) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
