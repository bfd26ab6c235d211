"""Reading the metadata log: snapshots in chunks, the next records, refusals that are not repeated at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.console.kafka.cluster import NotReachable, Refused
from penstock.console.kafka.metadata_log import MetadataReader, NoControllerListener
from penstock.model.errors import ErrorCode
from penstock.wire.apis import describe_quorum, fetch, fetch_snapshot
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.metadata_records import NoOpRecord, TopicRecord
from tests.console.metadata_batches import batch

CONTROLLER = ("127.0.0.1", 19092)
SNAPSHOT = batch(0, TopicRecord(name="kept", topic_id=b"k" * 16))
RECORDS = batch(5, TopicRecord(name="new", topic_id=b"n" * 16)) + batch(6, NoOpRecord())


class Controller:
    """A cluster whose log starts with a snapshot of the first five offsets; leader 1 in epoch 3."""

    def __init__(self) -> None:
        self.nodes = {1: ("127.0.0.1", 9092)}
        self.requests: list[Any] = []
        self.is_down = False
        self.is_refusing = False

    async def send(self, api: Any, request: Any) -> Any:
        if self.is_refusing:
            refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return describe_quorum.DescribeQuorumResponse(error_code=refusal)
        partition = describe_quorum.DescribeQuorumResponsePartition(
            leader_id=1, leader_epoch=3, high_watermark=7
        )
        topic = describe_quorum.DescribeQuorumResponseTopic(partitions=[partition])
        listeners = [Endpoint(host="127.0.0.1", port=9092), Endpoint(host=CONTROLLER[0], port=CONTROLLER[1])]
        nodes = [describe_quorum.QuorumNode(node_id=1, listeners=listeners)]
        return describe_quorum.DescribeQuorumResponse(topics=[topic], nodes=nodes)

    async def send_at(self, address: Any, api: Any, request: Any) -> Any:
        assert address == CONTROLLER
        self.requests.append(request)
        if self.is_down:
            raise NotReachable("it does not respond")
        if isinstance(request, fetch_snapshot.FetchSnapshotRequest):
            position = request.topics[0].partitions[0].position
            chunk = SNAPSHOT[position : position + 40]
            part = fetch_snapshot.SnapshotPartition(size=len(SNAPSHOT), unaligned_records=chunk)
            topic = fetch_snapshot.SnapshotTopic(partitions=[part])
            return fetch_snapshot.FetchSnapshotResponse(topics=[topic])
        wanted = request.topics[0].partitions[0]
        found = fetch.PartitionData(high_watermark=7, records=RECORDS if wanted.fetch_offset == 5 else b"")
        if wanted.fetch_offset == 0:
            found.snapshot_id = fetch.SnapshotId(end_offset=5, epoch=2)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[found])])


def test_a_snapshot_is_fetched_in_chunks_and_the_records_after_it() -> None:
    controller = Controller()
    log = asyncio.run(MetadataReader(controller).refresh(lambda log: log))  # type: ignore[arg-type]
    assert {name for kind, name in log.state_at(4).items if kind == "topic"} == {"kept"}
    assert {name for kind, name in log.state_at(6).items if kind == "topic"} == {"kept", "new"}
    fetches = [r for r in controller.requests if isinstance(r, fetch.FetchRequest)]
    positions = [
        (r.topics[0].partitions[0].fetch_offset, r.topics[0].partitions[0].last_fetched_epoch)
        for r in fetches
    ]
    assert positions == [(0, 0), (5, 2), (7, 3)]
    assert [r.replica_state for r in fetches] == [fetch.ReplicaState(replica_id=-1)] * 3


def test_a_silent_listener_is_not_tried_again_at_once() -> None:
    controller = Controller()
    controller.is_down = True
    reader = MetadataReader(controller)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(NoControllerListener, match="it does not respond"):
            asyncio.run(reader.refresh(lambda log: log))
    assert len(controller.requests) == 1


def test_a_user_without_the_right_is_refused() -> None:
    """The page said that the log is not known, as in an outage."""
    controller = Controller()
    controller.is_refusing = True
    reader = MetadataReader(controller)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            asyncio.run(reader.refresh(lambda log: log))
        assert refused.value.name == "CLUSTER_AUTHORIZATION_FAILED"
