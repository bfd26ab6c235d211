"""Alters topic configs through any node of a cluster."""

from __future__ import annotations

from penstock.metadata.configs import Operation
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.nodes import Cluster


async def alter(nodes: Cluster, node: int, kind: int, name: str, key: str, value: str | None) -> int:
    """Set a config, or unset it."""
    operation = Operation.DELETE if value is None else Operation.SET
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await nodes.call(node, INCREMENTAL_ALTER_CONFIGS, request)).responses
    return answer.error_code
