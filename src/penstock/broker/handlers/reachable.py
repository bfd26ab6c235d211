"""What clients of a listener can reach: brokers, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Final, TypeVar

from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_topic_partitions import DescribeTopicPartitionsResponsePartition
from penstock.wire.apis.metadata import MetadataResponsePartition

__all__ = ["CLUSTER_OPERATIONS", "TOPIC_OPERATIONS", "described_partitions", "reachable_brokers"]

P = TypeVar("P", MetadataResponsePartition, DescribeTopicPartitionsResponsePartition)
#: bits of the authorized operations; without an authorizer every client has all of them. For a topic: read,
#: write, create, delete, alter, describe, describe and alter configs. For the cluster: create, alter,
#: describe, cluster action, describe and alter configs, idempotent write.
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
#: partitions between two yields
_STEP: Final = 64


def reachable_brokers(image: ClusterImage, listener: str) -> Iterator[tuple[int, str, int, str | None, bool]]:
    """(id, host, port, rack, fenced) of the brokers that have an endpoint for `listener`."""
    for broker in image.brokers.values():
        if listener in broker.endpoints:
            host, port = broker.endpoints[listener]
            yield broker.id, host, port, broker.rack, broker.fenced


def described_partitions(
    kind: type[P],
    image: ClusterImage,
    listener: str,
    missing: Collection[int],
    partitions: Iterable[tuple[int, PartitionImage]],
) -> Generator[None, None, list[P]]:
    """The leaders and replicas of partitions, as partitions of one of the two responses.

    `missing` are brokers that do not respond.
    """
    brokers = image.brokers
    live = {node for node, known in brokers.items() if not known.fenced and listener in known.endpoints}
    described: list[P] = []
    for index, partition in partitions:
        if not len(described) % _STEP:
            yield
        error, leader = ErrorCode.NONE, partition.leader
        if leader in missing:
            # A client that gets a failed or hanging leader refreshes its metadata only much later.
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        elif leader not in live:
            # Clients of this listener cannot reach the leader.
            elsewhere = leader in brokers and not brokers[leader].fenced
            error = ErrorCode.LISTENER_NOT_FOUND if elsewhere else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        described.append(
            kind(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=[node for node in partition.replicas if node not in live],
            )
        )
    return described
