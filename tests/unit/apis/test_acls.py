"""CreateAcls, DescribeAcls, DeleteAcls."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller import acls as commands
from klamm.core.errors import ErrorCode
from klamm.metadata.image import to_records
from klamm.wire.messages.k29_describe_acls import DescribeAclsRequest
from klamm.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest

TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, ALL = 3, 4, 2
DENY, ALLOW = 2, 3


def acl(resource_name: str = "t", **fields: Any) -> AclCreation:
    return AclCreation(
        **{
            "resource_type": TOPIC,
            "resource_name": resource_name,
            "principal": "User:a",
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
            **fields,
        }
    )


def which(**fields: Any) -> dict[str, Any]:
    everything: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return everything | fields


async def create(node: Any, *acls: AclCreation, version: int = 3) -> list[int]:
    response = await node.call(CreateAclsRequest(creations=list(acls)), version)
    assert all(bool(r.error_message) == bool(r.error_code) for r in response.results)
    return [result.error_code for result in response.results]


async def describe(node: Any, version: int = 3, **fields: Any) -> list[tuple[Any, ...]]:
    response = await node.call(DescribeAclsRequest(**which(**fields)), version)
    assert response.error_code == ErrorCode.NONE, response
    return [
        (r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
        for r in response.resources
        for a in r.acls
    ]


async def delete(node: Any, *filters: dict[str, Any], version: int = 3) -> list[Any]:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**one) for one in filters])
    response = await node.call(request, version)
    return [one.error_code or [a.resource_name for a in one.matching_acls] for one in response.filter_results]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_acls_are_stored_found_and_removed(node: Any, version: int) -> None:
    prefix = acl("t", resource_pattern_type=4, operation=WRITE, permission_type=DENY, host="10.0.0.1")
    assert await create(node, acl(), prefix, version=version) == [0, 0]
    assert await describe(node, version) == [
        (TOPIC, "t", 3, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", 4, "User:a", "10.0.0.1", WRITE, DENY),
    ]
    assert await describe(node, version, pattern_type_filter=4) == [(TOPIC, "t", 4, "User:a", "10.0.0.1", WRITE, DENY)]
    assert await delete(node, which(operation=WRITE), version=version) == [["t"]]
    assert [found[2] for found in await describe(node, version)] == [3]


async def test_one_that_is_there_is_no_error_and_no_second_one(node: Any) -> None:
    assert await create(node, acl(), acl()) == [0, 0]
    offset = node.publisher.image.offset
    assert await create(node, acl()) == [0]
    assert node.publisher.image.offset == offset
    assert len(await describe(node)) == 1


async def test_a_resource_is_told_of_once_with_all_its_entries(node: Any) -> None:
    await create(node, acl(), acl("u"), acl(principal="User:b"))
    response = await node.call(DescribeAclsRequest(**which()), 3)
    assert [(r.resource_name, [a.principal for a in r.acls]) for r in response.resources] == [
        ("t", ["User:a", "User:b"]),
        ("u", ["User:a"]),
    ]


async def test_match_finds_all_that_concerns_a_topic(node: Any) -> None:
    await create(node, acl("orders"), acl("ord", resource_pattern_type=4), acl("*"), acl("other"))
    found = await describe(node, resource_type_filter=TOPIC, resource_name_filter="orders", pattern_type_filter=2)
    assert sorted(f[1] for f in found) == ["*", "ord", "orders"]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 8},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 0},
        {"operation": 1},
        {"operation": 16},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": CLUSTER, "resource_name": "t"},
        {"principal": "alice"},
        {"principal": ":alice"},
    ],
)
async def test_what_cannot_be_an_acl_is_refused_alone(node: Any, fields: dict[str, Any]) -> None:
    bad = acl(**fields)
    assert await create(node, bad, acl()) == [ErrorCode.INVALID_REQUEST, 0]
    assert len(await describe(node)) == 1


async def test_the_cluster_has_one_name(node: Any) -> None:
    assert await create(node, acl(CLUSTER_NAME, resource_type=CLUSTER, operation=ALL)) == [0]


async def test_every_filter_tells_what_it_has_found(node: Any) -> None:
    await create(node, acl("a"), acl("b"), acl("c"))
    results = await delete(
        node,
        which(resource_name_filter="a", pattern_type_filter=3),
        which(resource_name_filter="nothing"),
        which(operation=0),
        which(principal_filter="User:a", resource_name_filter="a"),
    )
    assert results == [["a"], [], ErrorCode.INVALID_REQUEST, ["a"]]
    assert [found[1] for found in await describe(node)] == ["b", "c"]


async def test_a_request_is_bounded(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_ACLS_PER_REQUEST", 2)
    assert await create(node, acl("a"), acl("b"), acl("c")) == [0, 0, ErrorCode.POLICY_VIOLATION]
    await create(node, acl("c"))
    assert await delete(node, which()) == [ErrorCode.POLICY_VIOLATION]
    assert len(await describe(node)) == 3


async def test_a_filter_that_we_do_not_understand(node: Any) -> None:
    response = await node.call(DescribeAclsRequest(**which(permission_type=9)), 3)
    assert (response.error_code, response.resources) == (ErrorCode.INVALID_REQUEST, [])
    assert response.error_message


async def test_who_may_not_see_or_change_them(node: Any, tools: Any) -> None:
    await create(node, acl())
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    assert await create(node, acl("u")) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert await delete(node, which()) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert len(await describe(node)) == 1
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(DescribeAclsRequest(**which()), 3)
    assert (response.error_code, response.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_a_snapshot_has_them(node: Any) -> None:
    await create(node, acl())
    assert [r.resource_name for r in to_records(node.publisher.image) if type(r).__name__ == "AclRecord"] == ["t"]


async def test_without_a_controller_every_entry_is_told_so(node: Any) -> None:
    await node.controller.close()
    request = CreateAclsRequest(creations=[acl(), acl("u")])
    with pytest.raises(Exception) as refused:
        await node.call(request, 3)
    answer = node.api(request).on_error(request, 3, refused.value.code)
    assert [r.error_code for r in answer.results] == [ErrorCode.NOT_CONTROLLER] * 2
