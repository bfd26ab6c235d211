"""ApiVersions, versions 0 to 4."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Struct):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Struct):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


API_VERSIONS = Api(
    18, "ApiVersions", (0, 4), flexible_from=3, request=ApiVersionsRequest, response=ApiVersionsResponse
)
