"""DescribeUserScramCredentials (key 50), version 0: which users can log in with SCRAM, and how (KIP-554).

Unusual: there are no credentials yet. A user who is asked for by name is not found, which is that user's error alone;
whoever asks for all (null, or an empty list) gets an empty answer.
"""

from __future__ import annotations

from collections import Counter

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(ctx: Context, request: DescribeUserScramCredentialsRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    names = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        error_message=None,
        results=[_not_found(name, count) for name, count in names.items()],
    )


def _not_found(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.RESOURCE_NOT_FOUND, f"there are no SCRAM credentials of a user {name}"
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"the request names the user {name} more than once"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=error_text(code, message))


def on_error(
    request: DescribeUserScramCredentialsRequest, version: int, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=error_text(code))


API = Api(DescribeUserScramCredentialsRequest, handle, key=50, versions=(0, 0), on_error=on_error)
