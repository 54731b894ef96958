"""UpdateFeatures, on the active controller's broker. Source: KafkaApis.handleUpdateFeatures (3.9)."""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.controller.controller import Controller
from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPDATE_FEATURES: Final = Offered(ApiKey.UPDATE_FEATURES, 0, 1)


class UpdateFeatures:
    """Serves UpdateFeatures."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: Request, message: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Answer UpdateFeatures: the controller checks and changes the finalized features."""
        slices = request.slices
        updates = await slices.list_of(_feature_update(key, request.version) for key in message.feature_updates)
        answer = await self._controller.update_features(
            updates, message.timeout_ms / 1000, validate_only=message.validate_only
        )
        results = await slices.list_of(
            UpdatableFeatureResult(name, error, text) for name, (error, text) in answer.results.items()
        )
        await slices.clear(updates)
        return UpdateFeaturesResponse(error_code=answer.error, error_message=answer.message, results=results)


def _feature_update(key: FeatureUpdateKey, version: int) -> FeatureUpdate:
    """One feature update; version 0 of the request knows only safe downgrades."""
    kind = key.upgrade_type
    if version == 0:
        kind = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(key.feature, key.max_version_level, kind)
