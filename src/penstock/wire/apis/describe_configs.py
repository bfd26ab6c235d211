"""DescribeConfigs, versions 1 to 4."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(string(), empty=True)


class DescribeConfigsRequest(Struct):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = nullable_string()
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = nullable_string("3+")


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


DESCRIBE_CONFIGS = Api(
    32,
    "DescribeConfigs",
    (1, 4),
    flexible_from=4,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)
