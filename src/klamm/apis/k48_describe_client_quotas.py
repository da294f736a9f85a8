"""DescribeClientQuotas (key 48), versions 0-1: the quotas of the entities that a filter finds (KIP-546).

Unusual: a filter without components finds everything, unless it is strict; a strict one finds only entities that have
no other types than those it names.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity
from klamm.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

_EXACT, _DEFAULT, _SPECIFIED = range(3)


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        wanted = _wanted(request.components)
    except BrokerError as error:
        message = error_text(error.code, str(error))
        return DescribeClientQuotasResponse(error_code=error.code, error_message=message, entries=None)
    return DescribeClientQuotasResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        error_message=None,
        entries=[
            _entry(entity, quotas)
            for entity, quotas in ctx.broker.image.quotas.items()
            if _matches(entity, wanted, request.strict)
        ],
    )


def _wanted(components: list[ComponentData]) -> dict[str, Container[str | None]]:
    """The names that each type may have; None is its default. BrokerError where the filter makes no sense."""
    wanted: dict[str, Container[str | None]] = {}
    for one in components:
        if not one.entity_type or one.entity_type in wanted:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the filter has the type {one.entity_type!r} twice, or empty")
        if one.entity_type not in (USER, CLIENT_ID, IP):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas for a {one.entity_type!r}")
        if one.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no match type {one.match_type}")
        if (one.match is not None) != (one.match_type == _EXACT):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"a name for {one.entity_type} goes with an exact match only")
        wanted[one.entity_type] = _Everything() if one.match_type == _SPECIFIED else (one.match,)
    if IP in wanted and len(wanted) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "an ip cannot be combined with a user or a client-id")
    return wanted


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


def _matches(entity: QuotaEntity, wanted: Mapping[str, Container[str | None]], strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    found = dict(entity)
    return all(kind in found and found[kind] in names for kind, names in wanted.items())


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )


def on_error(request: DescribeClientQuotasRequest, version: int, code: ErrorCode) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=error_text(code), entries=None)


API = Api(DescribeClientQuotasRequest, handle, key=48, versions=(0, 1), on_error=on_error)
