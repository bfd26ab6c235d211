"""Markers reach the leaders of their partitions: retries, batching, deleted topics, lost coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.broker.coordinators.marker_sender import MarkerSender
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
        self.errors: list[ErrorCode | PenstockError] = []
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.written: list[Partition] = []
        self.epoch = 5
        self.changed = asyncio.Event()
        self.sender = MarkerSender(self.image, self.send, lambda _, epoch: epoch == self.epoch, self.report)

    async def send(self, broker: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append((broker, request))
        self.changed.set()
        await asyncio.sleep(0)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if isinstance(error, PenstockError):
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
        self.written += partitions
        self.changed.set()

    async def until_written(self, *partitions: Partition, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while not all(self.written.count(partition) >= times for partition in partitions):
                self.changed.clear()
                await self.changed.wait()


def markers(*partitions: Partition, producer_id: int = 9) -> SendMarkers:
    return SendMarkers("x", producer_id, 3, True, frozenset(partitions), 2)


def test_each_leader_gets_its_partitions() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.sender.start(0, 5, markers(("t", 0), ("t", 1)))
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
        ]
        cluster.sender.start(0, 5, markers(("t", 0)))
        await cluster.until_written(("t", 0))
        assert len(cluster.requests) == 4

    asyncio.run(scenario())


def test_markers_that_arrive_meanwhile_are_sent_together() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        for producer_id in range(5):
            cluster.sender.start(0, 5, markers(("t", 0), producer_id=producer_id))
            if not producer_id:
                await cluster.changed.wait()
        await cluster.until_written(("t", 0), times=5)
        assert [len(request.markers) for _, request in cluster.requests] == [1, 4]

    asyncio.run(scenario())


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.sender.start(0, 5, markers(("gone", 0), ("t", 7)))
        await cluster.until_written(("gone", 0), ("t", 7))
        assert not cluster.requests

    asyncio.run(scenario())


def test_a_coordinator_that_was_replaced_stops_sending() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.sender.start(0, 5, markers(("t", 0)))
        await cluster.changed.wait()
        cluster.epoch = 6
        # The retry of the first comes before the second, which is started later and waits as long.
        cluster.errors += [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.sender.start(0, 6, markers(("t", 0), producer_id=10))
        await cluster.until_written(("t", 0))
        sent = [marker.producer_id for _, request in cluster.requests for marker in request.markers]
        assert sent == [9, 10, 10]

    asyncio.run(scenario())
