"""DescribeAcls (key 29), versions 1-3: the access control entries that a filter finds, by resource.

Unusual: a filter's pattern type can be MATCH (KIP-290), which finds all entries that concern the resource of that
name: its own, the prefixes of its name, and the wildcard.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.metadata.acls import AclFilter
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
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in ctx.broker.image.acls:
        if wanted.matches(acl):
            key = (acl.resource_type, acl.resource_name, acl.pattern)
            if key not in resources:
                resources[key] = DescribeAclsResource(resource_type=key[0], resource_name=key[1], pattern_type=key[2])
            resources[key].acls.append(
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
            )
    return DescribeAclsResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        error_message=None,
        resources=[resource for _, resource in sorted(resources.items())],
    )


def on_error(request: DescribeAclsRequest, version: int, code: ErrorCode) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=error_text(code))


API = Api(DescribeAclsRequest, handle, key=29, versions=(1, 3), on_error=on_error)
