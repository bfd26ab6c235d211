"""Fetches in the name of a follower."""

from __future__ import annotations

from penstock.net.deferred import Deferred
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages import decode_response, encode_request
from tests.broker.fake_connections import fake_connection
from tests.broker.nodes import Cluster

TOPICS = ("busy", "quiet")


def fetch_as_follower(
    nodes: Cluster,
    offset: int | dict[str, int],
    session: int = 0,
    epoch: int = 0,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
) -> FetchResponse:
    """What broker 1 answers at once to broker 2, which has the first `offset` records of each topic."""
    offsets = dict.fromkeys(TOPICS, offset) if isinstance(offset, int) else offset
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session,
        session_epoch=epoch,
        replica_state=ReplicaState(replica_id=2, replica_epoch=nodes[2].stages.cluster.node.broker_epoch),
        topics=[
            FetchTopic(
                topic_id=nodes[1].stages.cluster.image.topics[name].id,
                partitions=[
                    FetchPartition(
                        current_leader_epoch=0,
                        fetch_offset=at,
                        last_fetched_epoch=0 if at else -1,
                        log_start_offset=0,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for name, at in offsets.items()
        ],
    )
    frame = b"".join(map(bytes, encode_request(FETCH, FETCH.max_version, 7, "follower", request)))[4:]  # type: ignore[arg-type]
    dispatcher = nodes[1].serving.internal_dispatcher
    assert dispatcher is not None
    answer = dispatcher.serve(fake_connection(dispatcher, peer="follower"), memoryview(frame))
    assert answer is not None and not isinstance(answer, Deferred)
    written = b"".join(bytes(p) if isinstance(p, bytes | memoryview) else p.read() for p in answer)  # type: ignore[union-attr]
    return decode_response(FETCH, FETCH.max_version, memoryview(written)[4:])


def by_topic(nodes: Cluster, response: FetchResponse) -> dict[str, PartitionData]:
    names = {bytes(nodes[1].stages.cluster.image.topics[name].id): name for name in TOPICS}
    return {names[topic.topic_id]: topic.partitions[0] for topic in response.responses}
