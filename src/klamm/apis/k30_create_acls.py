"""CreateAcls (key 30), versions 1-3: store access control entries, each with an error of its own.

Unusual: without an authorizer Kafka refuses this. Here entries are kept all the same, so that they are there when
authorization is switched on. One that exists already is no error.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.acls import AclFailure, create_acls
from klamm.core.errors import ErrorCode
from klamm.metadata.acls import Acl
from klamm.wire.messages.k30_create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(ctx: Context, request: CreateAclsRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _create(ctx, request)


async def _create(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    acls = [_acl(creation) for creation in request.creations]
    results = await ctx.broker.controller.run(lambda image: create_acls(image, acls))
    return CreateAclsResponse(throttle_time_ms=ctx.throttle_time_ms, results=[_result(one) for one in results])


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _result(failure: AclFailure | None) -> AclCreationResult:
    if failure is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=failure.error, error_message=error_text(failure.error, failure.message))


def on_error(request: CreateAclsRequest, version: int, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(AclFailure(code, code.text)) for _ in request.creations])


API = Api(CreateAclsRequest, handle, key=30, versions=(1, 3), on_error=on_error)
