"""Appends batches that brokers write: audit events, dead letters of share groups, and delayed messages.

A broker sends a batch for a partition of another broker with Produce to the internal listener of its leader,
which needs ClusterAction. Topics that are not meant for such batches are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.replica.commits import check_enough_replicas, committed
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.ports import Workers
from penstock.records.batch import HEADER, read_header
from penstock.records.header_fields import PRODUCER_ID
from penstock.security.acls import Operation
from penstock.storage.log import LongWalk
from penstock.storage.producers import AppendOrigin, PastBatch
from penstock.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

__all__ = ["BrokerAppends"]


def _origin(batch: bytes) -> AppendOrigin:
    """Batches with a producer id are checked as those of clients: a repeated one is not appended again."""
    is_idempotent = read_header(batch).producer_id >= 0
    return AppendOrigin.CLIENT if is_idempotent else AppendOrigin.COORDINATOR


def _repeated(partition: Partition, batch: bytes) -> PastBatch | None:
    """The batch in the log that an idempotent batch repeats."""
    header = HEADER.unpack_from(batch)
    state = partition.log.producers.states.get(header[PRODUCER_ID])
    return None if state is None else state.retried(header)


class BrokerAppends:
    """Appends batches of brokers as the leader of their partition."""

    def __init__(
        self,
        image: ClusterImage,
        find: Callable[[str | TopicId, int], Slot],
        access: Access | None,
        may_append: Callable[[str], bool],
        workers: Workers,
    ) -> None:
        """`may_append` returns true for topics that other brokers may write to."""
        self._image = image
        self._find = find
        self._access = access
        self._may_append = may_append
        self._workers = workers

    async def append(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        """Append a batch; the result once it is committed."""
        partition = self._find(topic, index)
        if isinstance(partition, ErrorCode):
            return partition
        try:
            check_enough_replicas(partition)
            last_offset = await self._append_once(partition, batch)
            await committed(partition, last_offset + 1)
        except ApiError as e:
            return e.code
        return ErrorCode.NONE

    async def _append_once(self, partition: Partition, batch: bytes) -> int:
        """The last offset of a batch that was appended, now or before.

        Only the leader answers for a batch of before: the log of a follower, or of a broker that has just
        been started, may have batches that were never committed and are about to be truncated.
        """
        try:
            return await self._append_checked(partition, batch)
        except ApiError:
            # The batch may have been appended before the configs of the topic or the clock have changed.
            written = _repeated(partition, batch) if partition.leading else None
            if written is None:
                raise
            return written.last_offset

    async def _append_checked(self, partition: Partition, batch: bytes) -> int:
        data, origin = memoryview(bytearray(batch)), _origin(batch)
        if partition.is_mirror:
            # Dead letters and messages of delay topics would be records that the source does not have.
            partition.check_client_append()
        try:
            return partition.append(data, origin).last_offset
        except LongWalk as walk:
            # A compressed message of a delay topic, which is checked as that of a client.
            await self._workers.in_thread(walk.check)
            return partition.append(data, origin, walk.rules).last_offset

    def produce(self, context: Context, request: ProduceRequest) -> Deferred[ProduceResponse]:
        """Produce on the internal listener: batches that another broker writes, and nothing else.

        The batches are copied before this returns. Connections share their receive buffer, and the next
        request of any of them is written to it before the task begins.
        """
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytes(data.records))
        return context.spawn(self._produce(context, request))

    async def _produce(self, context: Context, request: ProduceRequest) -> ProduceResponse:
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
        topic_id = TopicId(topic.topic_id)
        known = self._image.topics_by_id.get(topic_id) or self._image.topics.get(topic.name)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not records or not self._may_append(known.name):
            return ErrorCode.INVALID_REQUEST
        return await self.append(known.name, index, bytes(records))
