"""UpdateFeatures, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int8, int16, int32, nullable_string, string


class FeatureUpdate(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    #: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Struct):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class UpdateFeaturesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


UPDATE_FEATURES = Api(
    57,
    "UpdateFeatures",
    (0, 2),
    flexible_from=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)
