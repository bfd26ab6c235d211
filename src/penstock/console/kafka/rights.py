"""The operations that brokers allow a user, as they say (KIP-430). Pages hide the buttons of others."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.security.acls import Operation
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic

__all__ = ["any_topic_rights", "cluster_operations", "cluster_rights", "rights_of", "topic_rights"]

_NOT_SAID: Final = -(2**31)


def rights_of(bits: int) -> list[str] | None:
    """The names of operations; None if the broker has not said them."""
    if bits == _NOT_SAID:
        return None
    return [operation.name.lower() for operation in Operation if bits & (1 << operation)]


async def cluster_operations(cluster: Cluster) -> list[str] | None:
    """Operations on the cluster; None if brokers do not say them."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    try:
        response = await cluster.send(DESCRIBE_CLUSTER, request)
    except (Refused, NotReachable):
        return None
    return None if response.error_code else rights_of(response.cluster_authorized_operations)


async def cluster_rights(cluster: Cluster) -> list[str] | None:
    """Operations on the cluster. `create` is also in it if the user may create any topic that it sees."""
    found = await cluster_operations(cluster)
    if found is None or "create" in found:
        return found
    return [*found, "create"] if "create" in (await any_topic_rights(cluster) or ()) else found


async def any_topic_rights(cluster: Cluster) -> list[str] | None:
    """Operations on at least one topic that the user sees; None if brokers do not say them."""
    everything = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    topics = (await cluster.send(METADATA, everything)).topics
    bits = [t.topic_authorized_operations for t in topics if not t.error_code]
    if _NOT_SAID in bits:
        return None
    return rights_of(reduce(or_, bits, 0))


async def topic_rights(cluster: Cluster, name: str) -> list[str] | None:
    """Operations on a topic; None if brokers do not say them."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (topic,) = (await cluster.send(METADATA, request)).topics
    return None if topic.error_code else rights_of(topic.topic_authorized_operations)
