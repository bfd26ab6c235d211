"""Sends the markers of decided transactions to the leaders of their partitions.

One request per broker is in flight. Markers that arrive meanwhile are sent together in the next request. A
marker is retried for ever while its partition has no leader, or answers with an error that passes. It is
dropped when this broker no longer coordinates the transaction: the next coordinator sends it again. A
partition of a deleted topic needs no marker.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode, PenstockError
from penstock.transactions.ledger import SendMarkers
from penstock.transactions.metadata import TopicPartition
from penstock.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["MarkerSender", "MarkerTransport"]

log = get_logger("transactions")
#: the pause before a marker is sent again
_RETRY_S: Final = 0.05
#: markers in one request
_MARKERS_MAX: Final = 500
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
#: a newer coordinator has taken over
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

#: sends a request to a broker, this one included; raises PenstockError if there is no response
MarkerTransport = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class _Marker(NamedTuple):
    """The markers of one transaction for some of its partitions."""

    #: of `__transaction_state`
    state_index: int
    coordinator_epoch: int
    effect: SendMarkers
    partitions: tuple[TopicPartition, ...]


class MarkerSender:
    """Queues of markers by broker."""

    def __init__(
        self,
        image: ClusterImage,
        send: MarkerTransport,
        coordinates: Callable[[int, int], bool],
        written: Callable[[int, SendMarkers, Iterable[TopicPartition]], None],
    ) -> None:
        """`coordinates` returns true while this broker leads a partition of the topic in that epoch.

        `written` gets the partitions whose markers are written.
        """
        self._image = image
        self._send = send
        self._coordinates = coordinates
        self._written = written
        self._queues: dict[int, list[_Marker]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._retries: set[asyncio.TimerHandle] = set()

    def start(self, index: int, coordinator_epoch: int, effect: SendMarkers) -> None:
        self._route(_Marker(index, coordinator_epoch, effect, tuple(sorted(effect.partitions))))

    def stop(self) -> None:
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()
        for task in self._senders.values():
            task.cancel()
        self._queues.clear()

    def _route(self, marker: _Marker) -> None:
        """Queue the marker for the leaders of its partitions."""
        if not self._coordinates(marker.state_index, marker.coordinator_epoch):
            return
        gone: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        by_broker: dict[int, list[TopicPartition]] = {}
        for name, index in marker.partitions:
            topic = self._image.topics.get(name)
            partition = None if topic is None else topic.partitions.get(index)
            if partition is None:
                gone.append((name, index))
            elif partition.leader not in self._image.brokers:
                leaderless.append((name, index))
            else:
                by_broker.setdefault(partition.leader, []).append((name, index))
        for broker_id, partitions in by_broker.items():
            self._queues.setdefault(broker_id, []).append(marker._replace(partitions=tuple(partitions)))
            if broker_id not in self._senders:
                task = asyncio.get_running_loop().create_task(self._run(broker_id))
                self._senders[broker_id] = task
        if leaderless:
            self._retry(marker._replace(partitions=tuple(leaderless)))
        if gone:
            self._written(marker.state_index, marker.effect, gone)

    def _retry(self, marker: _Marker) -> None:
        def again() -> None:
            self._retries.discard(handle)
            self._route(marker)

        handle = asyncio.get_running_loop().call_later(_RETRY_S, again)
        self._retries.add(handle)

    async def _run(self, broker_id: int) -> None:
        """Send the queue of one broker, request by request, until it is empty."""
        try:
            while queue := self._queues.pop(broker_id, []):
                if len(queue) > _MARKERS_MAX:
                    self._queues[broker_id] = queue[_MARKERS_MAX:]
                await self._send_batch(broker_id, queue[:_MARKERS_MAX])
        finally:
            del self._senders[broker_id]

    async def _send_batch(self, broker_id: int, markers: list[_Marker]) -> None:
        markers = [m for m in markers if self._coordinates(m.state_index, m.coordinator_epoch)]
        if not markers:
            return
        try:
            response = await self._send(broker_id, _request(markers))
        except PenstockError as e:
            log.info("markers_not_sent", broker=broker_id, error=str(e))
            for marker in markers:
                self._retry(marker)
            return
        codes = {
            (result.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        for marker in markers:
            self._answered(marker, codes)

    def _answered(self, marker: _Marker, codes: dict[tuple[int, str, int], ErrorCode]) -> None:
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for partition in marker.partitions:
            key = (marker.effect.producer_id, *partition)
            code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
                written.append(partition)
            elif code in _RETRIABLE:
                again.append(partition)
            else:
                log.warning(
                    "marker_refused",
                    transactional_id=marker.effect.transactional_id,
                    partition=f"{partition[0]}-{partition[1]}",
                    error=code.name,
                    fenced=code in _FENCED,
                )
        if again:
            self._retry(marker._replace(partitions=tuple(again)))
        if written:
            self._written(marker.state_index, marker.effect, written)


def _request(markers: list[_Marker]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.effect.producer_id,
                producer_epoch=marker.effect.producer_epoch,
                transaction_result=marker.effect.committed,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in _by_topic(marker.partitions).items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.effect.transaction_version,
            )
            for marker in markers
        ]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics
