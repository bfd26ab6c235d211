"""IncrementalAlterConfigs, versions 0 to 1."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int8, int16, int32, nullable_string, string


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Struct):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Struct):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


INCREMENTAL_ALTER_CONFIGS = Api(
    44,
    "IncrementalAlterConfigs",
    (0, 1),
    flexible_from=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
