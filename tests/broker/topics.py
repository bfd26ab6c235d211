"""Creates topics through any node of a cluster."""

from __future__ import annotations

from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tests.broker.nodes import Cluster


async def create(nodes: Cluster, node: int, name: str, factor: int = 1) -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=factor)], timeout_ms=10_000
    )
    (result,) = (await nodes.call(node, CREATE_TOPICS, request)).topics
    return result.error_code
