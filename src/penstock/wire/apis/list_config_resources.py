"""ListConfigResources, versions 0 to 1."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Struct):
    resource_types: list[int] = array(int8(), "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


LIST_CONFIG_RESOURCES = Api(
    74,
    "ListConfigResources",
    (0, 1),
    flexible_from=0,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
