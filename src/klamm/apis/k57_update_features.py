"""UpdateFeatures (key 57), versions 0-2: change the levels of features for the whole cluster (KIP-584).

Unusual: it is all or nothing. The error is that of the whole; up to v1 features are listed as well if all went well.
v0 knows only whether a downgrade is allowed, which v1 calls a safe one.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.features import FeatureUpdate, Upgrade, update_features
from klamm.core.errors import BrokerError, ErrorCode
from klamm.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES = 1


def handle(ctx: Context, request: UpdateFeaturesRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _update(ctx, request)


async def _update(ctx: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [_asked(update, ctx.api_version) for update in request.feature_updates]
    try:
        await ctx.broker.controller.run(
            lambda image: update_features(image, updates, validate_only=request.validate_only)
        )
    except BrokerError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error_text(error.code, str(error)))
    return UpdateFeaturesResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        error_message=None,
        results=[UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates],
    )


def _asked(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade = update.upgrade_type
    if version < _UPGRADE_TYPES:
        upgrade = Upgrade.SAFE_DOWNGRADE if update.allow_downgrade else Upgrade.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade)


def on_error(request: UpdateFeaturesRequest, version: int, code: ErrorCode) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=error_text(code))


API = Api(UpdateFeaturesRequest, handle, key=57, versions=(0, 2), on_error=on_error)
