"""Sends the markers of decided transactions to the leaders of their partitions.

One request per broker is in flight. Markers that arrive meanwhile are sent together in the next request. A
marker is retried for ever, except after an error that fences its producer or its coordinator. It is dropped
when the shard that decided the transaction is gone: the next shard sends it again, from another broker or
after a load on this one. A late marker of an earlier shard could end the producer's next transaction. If the
leader epoch rises under the same shard, the next request has the new coordinator epoch. A partition of a
deleted topic needs no marker.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
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

__all__ = ["MarkerSender", "MarkerTransport", "Term"]

log = get_logger("transactions")
#: the pause before a marker is sent again
_RETRY_S: Final = 0.05
#: markers in one request: the broker that writes them takes some 60 µs for each
_MARKERS_MAX: Final = 200
#: a newer producer or a newer coordinator has taken over
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

#: sends a request to a broker, this one included; raises PenstockError if there is no response
MarkerTransport = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class Term(NamedTuple):
    """The shard of a partition of `__transaction_state`, and its coordinator epoch."""

    shard: object
    epoch: int


class _Marker(NamedTuple):
    """The markers of one transaction for some of its partitions."""

    #: of `__transaction_state`
    state_index: int
    #: the shard that decided the transaction
    shard: object
    effect: SendMarkers
    partitions: tuple[TopicPartition, ...]


class MarkerSender:
    """Queues of markers by broker."""

    def __init__(
        self,
        image: ClusterImage,
        send: MarkerTransport,
        term: Callable[[int], Term | None],
        written: Callable[[int, SendMarkers, Iterable[TopicPartition]], None],
    ) -> None:
        """`term` returns None for a partition of the topic whose shard is not loaded here.

        `written` gets the partitions whose markers are written.
        """
        self._image = image
        #: sends a request; replaced by tests of markers that arrive twice
        self.send = send
        self._term = term
        self._written = written
        self._queues: dict[int, list[_Marker]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._retries: set[asyncio.TimerHandle] = set()

    def start(self, index: int, effect: SendMarkers) -> None:
        term = self._term(index)
        if term is not None:
            self._route(_Marker(index, term.shard, effect, tuple(sorted(effect.partitions))))

    def stop(self) -> None:
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()
        for task in self._senders.values():
            task.cancel()
        self._queues.clear()

    def _route(self, marker: _Marker) -> None:
        """Queue the marker for the leaders of its partitions."""
        if self._epoch(marker) is None:
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
            self._queues.setdefault(broker_id, []).extend(
                marker._replace(partitions=tuple(partitions[start : start + _MARKERS_MAX]))
                for start in range(0, len(partitions), _MARKERS_MAX)
            )
            if broker_id not in self._senders:
                task = asyncio.get_running_loop().create_task(self._run(broker_id))
                self._senders[broker_id] = task
        if leaderless:
            self._retry(marker._replace(partitions=tuple(leaderless)))
        if gone:
            self._report(marker, gone)

    def _epoch(self, marker: _Marker) -> int | None:
        """The coordinator epoch of the marker, None if its shard is gone."""
        term = self._term(marker.state_index)
        return term.epoch if term is not None and term.shard is marker.shard else None

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
                some = _first(queue)
                if len(queue) > some:
                    self._queues[broker_id] = queue[some:]
                await self._send_batch(broker_id, queue[:some])
                if len(queue) > some:
                    # A request to this broker is served at once.
                    await asyncio.sleep(0)
        finally:
            del self._senders[broker_id]

    async def _send_batch(self, broker_id: int, markers: list[_Marker]) -> None:
        stamped = [(m, epoch) for m in markers if (epoch := self._epoch(m)) is not None]
        if not stamped:
            return
        try:
            response = await self.send(broker_id, _request(stamped))
            codes = _codes(response)
        except PenstockError as e:
            log.info("markers_not_sent", broker=broker_id, error=str(e))
        except Exception as e:
            log.error("markers_not_sent", broker=broker_id, error=repr(e), exc_info=e)
        else:
            for marker, epoch in stamped:
                self._answered(marker, epoch, codes)
            return
        for marker, _ in stamped:
            self._retry(marker)

    def _answered(self, marker: _Marker, sent_epoch: int, codes: dict[tuple[int, str, int], int]) -> None:
        epoch = self._epoch(marker)
        if epoch is None:
            return
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for partition in marker.partitions:
            key = (marker.effect.producer_id, *partition)
            code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
                written.append(partition)
            elif code not in _FENCED or (
                code == ErrorCode.TRANSACTION_COORDINATOR_FENCED and epoch != sent_epoch
            ):
                again.append(partition)
            else:
                log.warning(
                    "marker_refused",
                    transactional_id=marker.effect.transactional_id,
                    partition=f"{partition[0]}-{partition[1]}",
                    error=ErrorCode(code).name,
                )
        if again:
            self._retry(marker._replace(partitions=tuple(again)))
        if written:
            self._report(marker, written)

    def _report(self, marker: _Marker, written: list[TopicPartition]) -> None:
        try:
            self._written(marker.state_index, marker.effect, written)
        except Exception as e:
            log.error("marker_not_recorded", error=repr(e), exc_info=e)
            self._retry(marker._replace(partitions=tuple(written)))


def _first(queue: Sequence[_Marker]) -> int:
    """How many entries of a queue go into one request; at least one."""
    size = 0
    for number, marker in enumerate(queue):
        size += len(marker.partitions)
        if number and size > _MARKERS_MAX:
            return number
    return len(queue)


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    return {
        (result.producer_id, topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


def _request(stamped: list[tuple[_Marker, int]]) -> WriteTxnMarkersRequest:
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
                coordinator_epoch=epoch,
                transaction_version=marker.effect.transaction_version,
            )
            for marker, epoch in stamped
        ]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics
