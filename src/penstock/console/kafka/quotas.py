"""Client quotas: list, set, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.kafka.cluster import Cluster, check
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    EntityData,
)

__all__ = ["alter_quotas", "list_quotas"]


async def list_quotas(cluster: Cluster) -> list[dict[str, Any]]:
    """One row per entity; a name of None is the default of its type."""
    response = await cluster.send(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
    check(response.error_code, response.error_message, "quotas")
    return [
        {
            "entity": {each.entity_type: each.entity_name for each in entry.entity},
            "limits": {value.key: value.value for value in entry.values},
        }
        for entry in response.entries or []
    ]


async def alter_quotas(
    cluster: Cluster, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> None:
    """Set limits, and remove those that are None."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()]
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(entries=[AlteredEntry(entity=named, ops=ops)])
    response = await cluster.send(ALTER_CLIENT_QUOTAS, request, changes=True)
    for entry in response.entries:
        check(entry.error_code, entry.error_message, "the quota is not changed")
