"""Requests about users, ACLs and roles that other clients do not send."""

from __future__ import annotations

from penstock.console.kafka.changes import BROKER
from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check
from penstock.net import access_client
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

__all__ = ["authorizer_configs", "list_roles"]


async def list_roles(cluster: Cluster) -> dict[str, list[str]] | None:
    """The members of each role; None for a cluster without roles, such as Apache Kafka."""
    try:
        return await access_client.list_roles(cluster)
    except Refused as error:
        if error.name.endswith("AUTHORIZATION_FAILED"):
            raise
        return None


async def authorizer_configs(cluster: Cluster) -> dict[str, str]:
    """The configs of the authorizer, of the first broker that describes them."""
    names = ["authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"]
    metadata = await cluster.metadata([])
    for broker in metadata.brokers:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(broker.node_id), configuration_keys=names
        )
        try:
            response = await cluster.send_to(
                broker.node_id, DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])
            )
        except NotReachable:
            continue
        (result,) = response.results
        check(result.error_code, result.error_message, "configs of the authorizer")
        return {config.name: config.value or "" for config in result.configs}
    return {}
