"""DescribeQuorum of a broker that is a cluster of its own."""

from __future__ import annotations

from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from tests.broker.raw import RawClient


def test_the_only_voter_has_an_address(client: RawClient) -> None:
    """`kafka-metadata-quorum describe` fails on an empty host."""
    topic = DescribeQuorumRequestTopic(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartition()]
    )

    (node,) = client.call(DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=[topic])).nodes

    assert node.node_id == 1
    assert node.listeners
    for listener in node.listeners:
        assert listener.name and listener.host and listener.port
