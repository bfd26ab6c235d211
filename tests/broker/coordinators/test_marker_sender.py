"""Markers reach the leaders of their partitions: retries, batching, deleted topics, lost coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from penstock.broker.coordinators.marker_sender import MarkerSender, Term
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.ids import TopicId
from penstock.transactions.ledger import SendMarkers
from penstock.wire.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.wire.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord

Partition = tuple[str, int]


class Cluster:
    """Brokers 1 and 2, topic t with a partition on each, and answers by script."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        for broker in (1, 2):
            self.image.apply(RegisterBrokerRecord(broker_id=broker, fenced=False), broker)
        topic_id = TopicId(b"t" * 16)
        self.image.apply(TopicRecord(name="t", topic_id=topic_id), 3)
        for index in (0, 1):
            record = PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[index + 1], isr=[index + 1], leader=index + 1
            )
            self.image.apply(record, 4 + index)
        #: errors to answer with, before NONE
        self.errors: list[ErrorCode | Exception] = []
        self.report_errors: list[Exception] = []
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.written: list[Partition] = []
        self.term: Term | None = Term("a shard", 5)
        self.changed = asyncio.Event()
        self.sender = MarkerSender(self.image, self.send, lambda _: self.term, self.report)

    async def send(self, broker: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append((broker, request))
        self.changed.set()
        await asyncio.sleep(0)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if isinstance(error, Exception):
            raise error
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def report(self, index: int, sent: SendMarkers, partitions: Iterable[Partition]) -> None:
        if self.report_errors:
            raise self.report_errors.pop()
        self.written += partitions
        self.changed.set()

    def sent(self) -> list[tuple[int, int]]:
        """The (producer id, coordinator epoch) of all markers."""
        sent = [marker for _, request in self.requests for marker in request.markers]
        return [(marker.producer_id, marker.coordinator_epoch) for marker in sent]

    async def until_written(self, *partitions: Partition, times: int = 1) -> None:
        async with asyncio.timeout(60):
            while not all(self.written.count(partition) >= times for partition in partitions):
                self.changed.clear()
                await self.changed.wait()


def markers(*partitions: Partition, producer_id: int = 9) -> SendMarkers:
    return SendMarkers("x", producer_id, 3, True, frozenset(partitions), 2)


def test_a_transaction_of_many_partitions_ends_in_several_requests() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        topic_id = TopicId(b"m" * 16)
        cluster.image.apply(TopicRecord(name="many", topic_id=topic_id), 6)
        for index in range(1000):
            record = PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
            cluster.image.apply(record, 7 + index)
        partitions = [("many", index) for index in range(1000)]
        cluster.sender.start(0, markers(*partitions))
        await cluster.until_written(*partitions)
        sizes = [
            len(topic.partition_indexes)
            for _, request in cluster.requests
            for marker in request.markers
            for topic in marker.topics
        ]
        # Each request is written in one step of the event loop: 10,000 markers took half a second.
        assert sum(sizes) == 1000
        assert max(sizes) <= 200

    asyncio.run(scenario())


def test_each_leader_gets_its_partitions() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.sender.start(0, markers(("t", 0), ("t", 1)))
        await cluster.until_written(("t", 0), ("t", 1))
        assert sorted(broker for broker, _ in cluster.requests) == [1, 2]
        (marker,) = cluster.requests[0][1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (9, 3, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)

    asyncio.run(scenario())


def test_passing_errors_are_retried() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.errors = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            PenstockError("gone"),
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ValueError("a response that cannot be decoded"),
        ]
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.until_written(("t", 0))
        assert len(cluster.requests) == 7

    asyncio.run(scenario())


def test_markers_that_arrive_meanwhile_are_sent_together() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        for producer_id in range(5):
            cluster.sender.start(0, markers(("t", 0), producer_id=producer_id))
            if not producer_id:
                await cluster.changed.wait()
        await cluster.until_written(("t", 0), times=5)
        assert [len(request.markers) for _, request in cluster.requests] == [1, 4]

    asyncio.run(scenario())


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.sender.start(0, markers(("gone", 0), ("t", 7)))
        await cluster.until_written(("gone", 0), ("t", 7))
        assert not cluster.requests

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_marker_is_not_retried(code: ErrorCode) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.errors = [code, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.changed.wait()
        # The second is started later and waits as long as a retry of the first.
        cluster.sender.start(0, markers(("t", 0), producer_id=10))
        await cluster.until_written(("t", 0))
        assert cluster.sent() == [(9, 5), (10, 5), (10, 5)]

    asyncio.run(scenario())


def test_a_coordinator_that_was_replaced_stops_sending() -> None:
    """Another shard, even of the same leader epoch, sends all markers of its own."""

    async def scenario() -> None:
        cluster = Cluster()
        cluster.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.changed.wait()
        cluster.term = Term("a reloaded shard", 5)
        # The retry of the first comes before the second, which is started later and waits as long.
        cluster.errors += [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.sender.start(0, markers(("t", 0), producer_id=10))
        await cluster.until_written(("t", 0))
        assert cluster.sent() == [(9, 5), (10, 5), (10, 5)]

    asyncio.run(scenario())


def test_a_result_for_an_earlier_shard_is_not_reported() -> None:
    """The shard that is loaded now may be in the producer's next transaction, with the same epoch."""

    async def scenario() -> None:
        cluster = Cluster()
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.changed.wait()
        cluster.term = Term("a reloaded shard", 5)
        cluster.sender.start(0, markers(("t", 1)))
        await cluster.until_written(("t", 1))
        assert len(cluster.requests) == 2 and cluster.written == [("t", 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_that_waits_gets_the_new_epoch_of_its_shard(code: ErrorCode) -> None:
    """A reassignment raises the leader epoch, and the leader may stay the same."""

    async def scenario() -> None:
        cluster = Cluster()
        cluster.errors = [code]
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.changed.wait()
        cluster.term = Term("a shard", 6)
        await cluster.until_written(("t", 0))
        assert cluster.sent() == [(9, 5), (9, 6)]

    asyncio.run(scenario())


def test_a_marker_that_could_not_be_recorded_is_sent_again() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.report_errors = [ValueError("a fault in the shard")]
        cluster.sender.start(0, markers(("t", 0)))
        await cluster.until_written(("t", 0))
        assert len(cluster.requests) == 2

    asyncio.run(scenario())
