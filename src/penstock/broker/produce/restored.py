"""Appends the batches of a backup, with the offsets that they have, to a topic that is being restored.

`penstock restore --bootstrap` sends them with Produce and acks=-2, which Apache Kafka refuses. They need
ClusterAction, and a topic with `penstock.restoring`, which refuses all other producers. A request says which
end offset the log must have, so that one that is sent twice, or after records were lost, changes nothing.

Invariant: the response comes when everything below the new end is committed, as with acks=all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.produce.pending import Acknowledgement
from penstock.broker.replica.commits import check_enough_replicas, committed
from penstock.broker.replica.given_offsets import append_at_offsets, check_and_stamp, start_empty_log
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
)
from penstock.model.ids import INTERNAL_TOPICS, TopicId
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation
from penstock.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RestoredPart,
    TopicProduceResponse,
)

__all__ = ["RestoredAppends"]


class RestoredAppends:
    """Appends batches of a restore as the leader of their partition."""

    def __init__(self, find: Callable[[str | TopicId, int], Slot], access: Access | None) -> None:
        self._find = find
        self._access = access

    def __call__(
        self, context: Context, request: ProduceRequest, part: RestoredPart
    ) -> ProduceResponse | Deferred[ProduceResponse | Acknowledgement | None]:
        """Append before this returns: the batches are in the receive buffer."""
        found: Slot = ErrorCode.NONE
        try:
            if self._access is not None and not self._access.allows_on_cluster(
                context, Operation.CLUSTER_ACTION
            ):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
                raise InvalidRequest("a request of a restore has one partition")
            (topic,) = request.topic_data
            (data,) = topic.partition_data
            # Produce names topics up to version 12.
            found = self._find(topic.name or TopicId(topic.topic_id), data.index)
            if isinstance(found, ErrorCode):
                raise ApiError(found)
            _append(found, data.records, part)
        except ApiError as e:
            return _response(request, found, e)
        return context.spawn(_committed(request, found))


def _append(partition: Partition, records: memoryview | None, part: RestoredPart) -> None:
    log = partition.log
    if not partition.leading:
        raise NotLeaderOrFollower
    if partition.topic in INTERNAL_TOPICS or not log.config.penstock_restoring:
        raise PolicyViolation(f"topic {partition.topic} is not being restored")
    check_enough_replicas(partition)
    batches = memoryview(b"") if records is None else records
    check_and_stamp(batches, part.next_offset, partition.leader_epoch)
    if part.is_first and log.log_start_offset == log.end_offset < part.next_offset:
        start_empty_log(partition, part.next_offset)
    if log.end_offset != part.next_offset:
        raise OffsetOutOfRange(f"{partition.name} ends at {log.end_offset}, not at {part.next_offset}")
    if batches:
        append_at_offsets(partition, batches)
    if part.log_start_offset >= 0:
        partition.advance_log_start(min(part.log_start_offset, log.high_watermark))


async def _committed(
    request: ProduceRequest, partition: Partition
) -> ProduceResponse | Acknowledgement | None:
    end_offset = partition.log.end_offset
    try:
        await asyncio.wait_for(committed(partition, end_offset), max(request.timeout_ms, 1) / 1000)
    except TimeoutError:
        return _response(request, partition, ApiError(ErrorCode.REQUEST_TIMED_OUT))
    except ApiError as e:
        return _response(request, partition, e)
    return _response(request, partition)


def _response(request: ProduceRequest, found: Slot, error: ApiError | None = None) -> ProduceResponse:
    """The response to all partitions; it has the end offset of the log, also with an error."""
    end_offset = found.log.end_offset if isinstance(found, Partition) else -1
    code = ErrorCode.NONE if error is None else error.code
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=code,
                        error_message=None if error is None else str(error),
                        base_offset=end_offset,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
