"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas of users, client ids and addresses (KIP-546).

Unusual: quotas are kept in the metadata but not enforced yet.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.quotas import ChangedQuota, QuotaChange, alter_quotas
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    ResponseEntryData,
)


def handle(ctx: Context, request: AlterClientQuotasRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _alter(ctx, request)


async def _alter(ctx: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    changes = [_change(entry) for entry in request.entries]
    results = await ctx.broker.controller.run(
        lambda image: alter_quotas(image, changes, validate_only=request.validate_only)
    )
    return AlterClientQuotasResponse(throttle_time_ms=ctx.throttle_time_ms, entries=[_result(one) for one in results])


def _change(entry: EntryData) -> QuotaChange:
    return QuotaChange(_parts(entry), [(op.key, None if op.remove else op.value) for op in entry.ops])


def _parts(entry: EntryData) -> list[tuple[str, str | None]]:
    return [(part.entity_type, part.entity_name) for part in entry.entity]


def _result(changed: ChangedQuota) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=changed.error,
        error_message=error_text(changed.error, changed.message) if changed.error else None,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in changed.parts],
    )


def on_error(request: AlterClientQuotasRequest, version: int, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_result(ChangedQuota(_parts(entry), code)) for entry in request.entries])


API = Api(AlterClientQuotasRequest, handle, key=49, versions=(0, 1), on_error=on_error)
