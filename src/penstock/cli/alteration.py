"""Reads and alters the configs of topics, brokers and groups.

Requests go through librdkafka, except for the defaults of all brokers, which librdkafka does not support.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from penstock.cli.connection import Cluster
from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import Failure
from penstock.metadata.configs import Operation
from penstock.metadata.image import BROKER
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_ALL_BROKERS = "all brokers"


def topic_resource(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


def broker_resource(broker_id: str) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, broker_id)


def group_resource(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.GROUP, name)


def config_entries(cluster: Cluster, resource: ConfigResource) -> list[dict[str, Any]]:
    """A resource's configs, by name."""
    _check_is_there(cluster, resource)
    entries = _result(
        cluster, cluster.admin.describe_configs([resource], request_timeout=cluster.timeout_s), resource
    )
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": ConfigSource(entry.source).name,
            "read_only": bool(entry.is_read_only),
            "sensitive": bool(entry.is_sensitive),
        }
        for _, entry in sorted(entries.items())
    ]


def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    values: Mapping[str, str],
    removed: Iterable[str] = (),
) -> None:
    """Set and unset configs; all other configs do not change."""
    _check_is_there(cluster, resource)
    for name, value in values.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for name in removed:
        resource.add_incremental_config(
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        )
    _result(
        cluster,
        cluster.admin.incremental_alter_configs([resource], request_timeout=cluster.timeout_s),
        resource,
    )


def common_entries(line: DirectLine) -> list[dict[str, Any]]:
    """The configs that are set for all brokers, by name."""
    wanted = DescribeConfigsResource(resource_type=BROKER, resource_name="", configuration_keys=None)
    (result,) = line.send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[wanted])).results
    refuse(result.error_code, result.error_message, _ALL_BROKERS)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": ConfigSource(entry.config_source).name,
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in sorted(result.configs, key=lambda entry: entry.name)
    ]


def alter_common(line: DirectLine, values: Mapping[str, str], removed: Iterable[str]) -> None:
    """Like `alter_configs`, for all brokers; a broker's own setting overrides it."""
    configs = [
        *(AlterableConfig(name=n, config_operation=Operation.SET, value=v) for n, v in values.items()),
        *(AlterableConfig(name=n, config_operation=Operation.DELETE, value=None) for n in removed),
    ]
    altered = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
    (result,) = line.send(
        INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[altered])
    ).responses
    refuse(result.error_code, result.error_message, _ALL_BROKERS)


def _check_is_there(cluster: Cluster, resource: ConfigResource) -> None:
    """Raise a Failure for an unknown broker. Why: librdkafka sends the request to it, and would wait."""
    if resource.restype is ResourceType.BROKER:
        brokers = sorted(cluster.metadata(cluster.admin).brokers)
        if int(resource.name) not in brokers:
            there = ", ".join(map(str, brokers))
            raise Failure(f"no broker {resource.name}: the cluster has {there}")


def _result(cluster: Cluster, futures: Mapping[ConfigResource, Any], resource: ConfigResource) -> Any:
    about = f"{resource.restype.name.lower()} {resource.name}".strip()
    return cluster.wait(next(iter(futures.values())), about)
