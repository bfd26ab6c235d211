"""Small clusters as responses, for tests of views."""

from __future__ import annotations

from typing import Any

from penstock.console.views.samples import Sample
from penstock.wire.apis.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from penstock.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.wire.apis.describe_quorum import DescribeQuorumResponsePartition, ReplicaState
from penstock.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["a_sample", "log_dirs"]


def log_dirs(sizes: dict[str, list[int]], *, total: int = 100, free: int = 90, error: int = 0) -> Any:
    """A broker's answer: the sizes of the partitions of each topic."""
    topics = [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                DescribeLogDirsPartition(partition_index=n, partition_size=s) for n, s in enumerate(own)
            ],
        )
        for name, own in sizes.items()
    ]
    result = DescribeLogDirsResult(
        log_dir="/data", topics=topics, total_bytes=total, usable_bytes=free, error_code=error
    )
    return DescribeLogDirsResponse(results=[result])


def a_sample(
    time_s: float = 1.0,
    *,
    brokers: tuple[int, ...] = (1, 2),
    fenced: tuple[int, ...] = (),
    controller: int = 1,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2),
    topics: tuple[str, ...] = ("t",),
    **more: Any,
) -> Sample:
    """Topics with one partition on the brokers 1 and 2."""
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=1, replica_nodes=[1, 2], isr_nodes=list(isr)
    )
    metadata = MetadataResponse(
        cluster_id="c",
        brokers=[MetadataResponseBroker(node_id=n, host="h", port=9000 + n) for n in brokers],
        topics=[
            MetadataResponseTopic(name=name, topic_id=name.encode().ljust(16, b"\0"), partitions=[partition])
            for name in topics
        ],
    )
    described = DescribeClusterResponse(
        brokers=[DescribeClusterBroker(broker_id=n, host="h", port=9000 + n) for n in brokers]
        + [DescribeClusterBroker(broker_id=n, host="h", port=9000 + n, is_fenced=True) for n in fenced]
    )
    quorum = DescribeQuorumResponsePartition(
        leader_id=controller,
        leader_epoch=3,
        high_watermark=9,
        current_voters=[
            ReplicaState(replica_id=1, log_end_offset=9),
            ReplicaState(replica_id=2, log_end_offset=7),
        ],
    )
    fields: dict[str, Any] = {
        "cluster": described,
        "quorum": quorum,
        "log_dirs": {n: log_dirs({name: [10] for name in topics}) for n in brokers},
        "groups": [],
    }
    return Sample(time_s, metadata, **(fields | more))
