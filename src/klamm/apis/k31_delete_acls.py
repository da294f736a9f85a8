"""DeleteAcls (key 31), versions 1-3: remove the access control entries that filters find, and say which.

A filter that finds nothing is no error.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.acls import AclFailure, deleting_acls
from klamm.core.errors import ErrorCode
from klamm.metadata.acls import Acl, AclFilter
from klamm.wire.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(ctx: Context, request: DeleteAclsRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _delete(ctx, request)


async def _delete(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = [_filter(one) for one in request.filters]
    results = await ctx.broker.controller.run(lambda image: deleting_acls(image, filters))
    return DeleteAclsResponse(throttle_time_ms=ctx.throttle_time_ms, filter_results=[_result(one) for one in results])


def _filter(one: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        one.resource_type_filter,
        one.resource_name_filter,
        one.pattern_type_filter,
        one.principal_filter,
        one.host_filter,
        one.operation,
        one.permission_type,
    )


def _result(result: list[Acl] | AclFailure) -> DeleteAclsFilterResult:
    if isinstance(result, AclFailure):
        message = error_text(result.error, result.message)
        return DeleteAclsFilterResult(error_code=result.error, error_message=message)
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_removed(acl) for acl in result])


def _removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def on_error(request: DeleteAclsRequest, version: int, code: ErrorCode) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_result(AclFailure(code, code.text)) for _ in request.filters])


API = Api(DeleteAclsRequest, handle, key=31, versions=(1, 3), on_error=on_error)
