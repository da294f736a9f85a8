"""DescribeAcls (key 29), versions 1-3: the access control entries that a filter finds, by resource.

Unusual: a filter's pattern type can be MATCH (KIP-290), which finds all entries that concern the resource of that
name: its own, the prefixes of its name, and the wildcard.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.core.slices import in_slices
from klamm.metadata.acls import Acl, AclFilter, finding
from klamm.wire.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(ctx: Context, request: DescribeAclsRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    problem = wanted.problem()
    if problem is not None:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    return _describe(ctx, wanted)


async def _describe(ctx: Context, wanted: AclFilter) -> DescribeAclsResponse:
    found = await in_slices(finding(ctx.broker.image.acls, wanted))
    return DescribeAclsResponse(
        throttle_time_ms=ctx.throttle_time_ms, error_message=None, resources=_by_resource(found)
    )


def _by_resource(found: Iterable[Acl]) -> list[DescribeAclsResource]:
    """Sorted by type and name."""
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in found:
        key = (acl.resource_type, acl.resource_name, acl.pattern)
        resource = resources.get(key)
        if resource is None:
            resource = DescribeAclsResource(resource_type=key[0], resource_name=key[1], pattern_type=key[2])
            resources[key] = resource
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return [resources[key] for key in sorted(resources)]


def on_error(request: DescribeAclsRequest, version: int, code: ErrorCode) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=error_text(code))


API = Api(DescribeAclsRequest, handle, key=29, versions=(1, 3), on_error=on_error)
