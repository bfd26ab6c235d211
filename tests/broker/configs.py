"""Requests about configs, as tests think of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.apis import alter_configs as legacy
from penstock.wire.apis import incremental_alter_configs as incremental
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from tests.broker.raw import RawClient

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
#: the node id of the broker under test, ours or Apache Kafka's
NODE = "1"
DEFAULT_BROKER = ""
#: config sources
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5

Outcome = tuple[int, str | None]


def describe(
    client: RawClient,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    version: int = DESCRIBE_CONFIGS.max_version,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = client.call(DESCRIBE_CONFIGS, version, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def shown(
    client: RawClient, kind: int, name: str, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    """All configs of a resource by their names."""
    result = describe(client, kind, name, version=version)
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {config.name: config for config in result.configs}


def value_of(client: RawClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """A config's value and its source."""
    config = shown(client, kind, name)[key]
    return config.value, config.config_source


def alter(
    client: RawClient,
    kind: int,
    name: str,
    *alterations: tuple[str, int, str | None],
    version: int = INCREMENTAL_ALTER_CONFIGS.max_version,
    validate_only: bool = False,
) -> Outcome:
    """IncrementalAlterConfigs of one resource: (key, operation, value) each."""
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in alterations
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = client.call(INCREMENTAL_ALTER_CONFIGS, version, request).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def set_config(client: RawClient, kind: int, name: str, key: str, value: str) -> None:
    code, message = alter(client, kind, name, (key, SET, value))
    assert code == ErrorCode.NONE, message


def replace(
    client: RawClient,
    kind: int,
    name: str,
    values: Mapping[str, str | None],
    version: int = ALTER_CONFIGS.max_version,
    validate_only: bool = False,
) -> Outcome:
    """AlterConfigs of one resource."""
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[legacy.AlterableConfig(name=key, value=value) for key, value in values.items()],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = client.call(ALTER_CONFIGS, version, request).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message
