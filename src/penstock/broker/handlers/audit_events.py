"""Appends audit events to partitions of `__audit`: those of this broker, and those that others send.

Clients cannot write to the topic, because it is internal. Brokers send their events with Produce to the
internal listener of the leader, which needs ClusterAction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.replica.partition_table import Slot
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import AUDIT_TOPIC, TopicId
from penstock.security.acls import Operation
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

__all__ = ["AuditAppends"]


class AuditAppends:
    """Appends batches of audit events as the leader of their partition."""

    def __init__(
        self, image: ClusterImage, find: Callable[[str | TopicId, int], Slot], access: Access | None
    ) -> None:
        self._image = image
        self._find = find
        self._access = access

    async def append(self, index: int, batch: bytes) -> ErrorCode:
        """Append a batch; the result once it is committed."""
        partition = self._find(AUDIT_TOPIC, index)
        if isinstance(partition, ErrorCode):
            return partition
        try:
            leadership = partition.leadership
            if leadership is not None:
                leadership.check_enough_replicas()
            appended = partition.append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR)
        except ApiError as e:
            return e.code
        if leadership is None:
            return ErrorCode.NONE
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(code: ErrorCode) -> None:
            if not committed.done():
                committed.set_result(code)

        leadership.when_committed(appended.last_offset + 1, done)
        return await committed

    async def produce(self, context: Context, request: ProduceRequest) -> ProduceResponse:
        """Produce on the internal listener: audit events of another broker, and nothing else."""
        access = self._access
        refusal = None
        if access is not None and not access.allows_on_cluster(context, Operation.CLUSTER_ACTION):
            refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                code = refusal or await self._append_sent(topic, data.index, data.records)
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1))
            topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return ProduceResponse(responses=topics)

    async def _append_sent(
        self, topic: TopicProduceData, index: int, records: memoryview | None
    ) -> ErrorCode:
        known = self._image.topics.get(AUDIT_TOPIC)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.name != AUDIT_TOPIC and topic.topic_id != known.id) or not records:
            return ErrorCode.INVALID_REQUEST
        return await self.append(index, bytes(records))
