"""Writes transaction markers (COMMIT, ABORT) to partitions that this broker leads, with acks=all.

The transaction coordinator sends markers with WriteTxnMarkers, and so does an administrator that aborts a
hanging transaction. A marker of an old producer epoch or an old coordinator epoch is refused.

The partitions of a coordinator (`__consumer_offsets`) take part in transactions through their shards: a
marker follows the records that the shard has decided on but not appended yet. Coordinators of this kind
register as a `MarkerTarget`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from penstock.broker.replica.closed_topics import takes_markers
from penstock.broker.replica.commits import Done, check_enough_replicas, when_committed
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ApiError, ErrorCode, InvalidProducerEpoch
from penstock.net.deferred import Deferred
from penstock.ports import Clock
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["Marker", "MarkerTarget", "MarkerWriter", "append_marker", "check_marker"]

#: the errors of a coordinator that the sender of markers does not expect: it retries after this one
_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Marker(NamedTuple):
    """The end of a producer's transaction, to be written to some partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerTarget(Protocol):
    """A coordinator whose partitions take part in transactions."""

    def write_marker(self, index: int, marker: Marker, done: Done) -> None:
        """Write `marker` to partition `index`, behind all records that its shard has decided on."""
        ...


def check_marker(partition: Partition, marker: Marker) -> None:
    """Raise the ApiError of a marker that the log refuses: its producer or its coordinator is fenced."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise ApiError(
            # Kafka's code.
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"a marker of producer {marker.producer_id}, epoch {marker.producer_epoch}",
        )
    producers = partition.log.producers
    producers.check_marker_epoch(marker.producer_id, marker.producer_epoch, marker.transaction_version)
    state = producers.states.get(marker.producer_id)
    if state is None:
        return
    if marker.producer_epoch < state.epoch:
        raise InvalidProducerEpoch(
            f"producer {marker.producer_id} has epoch {state.epoch} here; "
            f"a marker of epoch {marker.producer_epoch} is too late"
        )
    if marker.coordinator_epoch < state.coordinator_epoch:
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
        )


def append_marker(partition: Partition, marker: Marker, now_ms: int) -> int:
    """Append `marker` as leader; returns the end offset, which has to be committed. Raises ApiError."""
    check_enough_replicas(partition)
    check_marker(partition, marker)
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    batch = build_end_transaction(
        EndTransaction(marker.committed, marker.coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=now_ms,
    )
    appended = partition.append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR)
    return appended.last_offset + 1


class MarkerWriter:
    """Carries out WriteTxnMarkers requests."""

    def __init__(
        self,
        partitions: Partitions,
        clock: Clock,
        timeout_s: float,
        targets: Mapping[str, MarkerTarget],
    ) -> None:
        """`targets` are the coordinators by the name of their topic."""
        self._partitions = partitions
        self._clock = clock
        self._timeout_s = timeout_s
        self._targets = targets

    def write(
        self, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
        """Append all markers; the response comes when each is committed or has failed."""
        pending = _PendingMarkers(self._timeout_s)
        for each in request.markers:
            marker = Marker(
                each.producer_id,
                each.producer_epoch,
                each.transaction_result,
                each.coordinator_epoch,
                each.transaction_version,
            )
            pending.results.append(self._write_to_all(marker, each, pending))
        return pending.finish()

    def _write_to_all(
        self, marker: Marker, wanted: WritableTxnMarker, pending: _PendingMarkers
    ) -> WritableTxnMarkerResult:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in wanted.topics:
            answers = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(answers)
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                answers.partitions.append(answer)
                self._write_one(topic.name, index, marker, pending.expect(answer))
        return result

    def _write_one(self, topic: str, index: int, marker: Marker, done: Done) -> None:
        partition = self._partitions.find(topic, index)
        if isinstance(partition, ErrorCode):
            # As in Kafka, a broker that has no replica does not say more.
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        target = self._targets.get(topic)
        if target is not None:
            target.write_marker(index, marker, done)
            return
        if not takes_markers(partition.log.config):
            # No producer of this cluster has written to it, so there is nothing to end: a marker here would
            # not be in the source. Coordinators would repeat it for ever if it were refused.
            done(ErrorCode.NONE if partition.leading else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            end_offset = append_marker(partition, marker, self._clock.now_ms())
        except ApiError as e:
            done(e.code)
            return
        when_committed(partition, end_offset, done)


class _PendingMarkers:
    """A WriteTxnMarkers request whose response is pending: counts the markers that are not committed yet."""

    __slots__ = ("_deferred", "_open", "_timeout_s", "_timer", "results")

    def __init__(self, timeout_s: float) -> None:
        self.results: list[WritableTxnMarkerResult] = []
        self._timeout_s = timeout_s
        self._deferred: Deferred[WriteTxnMarkersResponse] = Deferred()
        #: the answers that have no result yet, by their identity
        self._open: dict[int, WritableTxnMarkerPartitionResult] = {}
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, answer: WritableTxnMarkerPartitionResult) -> Done:
        """Returns the function that takes the result for one partition."""
        self._open[id(answer)] = answer

        def done(code: ErrorCode) -> None:
            if self._open.pop(id(answer), None) is None:
                # The request has timed out.
                return
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._deferred.resolve(WriteTxnMarkersResponse(markers=self.results))

        return done

    def finish(self) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
        """All markers are on their way."""
        if not self._open:
            return WriteTxnMarkersResponse(markers=self.results)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._timed_out)
        self._deferred.on_cancel = self._timer.cancel
        return self._deferred

    def _timed_out(self) -> None:
        """Answer now. The markers stay in the log, and may be committed later."""
        for answer in self._open.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._open.clear()
        self._deferred.resolve(WriteTxnMarkersResponse(markers=self.results))
