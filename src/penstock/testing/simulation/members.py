"""Members of a consumer group (KIP-848): they join, take assignments, commit offsets, leave and rejoin.

A member commits rising offsets, from the committed offset at its assignment on. It sometimes sends
OffsetFetch. A committed offset must never be lost, whichever member has the partition.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.history import CommitsRead, CommitsRequested, Committed
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

__all__ = ["GroupMember"]

_JOIN, _LEAVE = 0, -1
#: probability that a member leaves, and that it commits instead of sending OffsetFetch
_LEAVES: Final = 0.05
_COMMITS: Final = 0.6
_REBALANCE_MS: Final = 5_000


class GroupMember:
    """One member of `group`, which reads `topic`."""

    def __init__(self, client: Client, group: str, topic: str, pause_s: float) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._pause_s = pause_s
        self._member_id = ""
        self._epoch = _JOIN
        #: its partitions, each with the offset that it has committed
        self._positions: dict[int, int | None] = {}
        self.stopping = False

    async def run(self) -> None:
        client = self._client
        while not self.stopping:
            await asyncio.sleep(client.rng.random() * self._pause_s)
            try:
                if self._topic not in client.topic_ids:
                    await client.refresh(self._topic)
                await self._heartbeat()
                for index in list(self._positions):
                    await self._work_on(index)
            except Unanswered:
                await client.backoff()

    async def _work_on(self, index: int) -> None:
        if index in self._positions:
            if self._positions[index] is not None and self._client.rng.random() < _COMMITS:
                await self._commit(index)
            else:
                await self._where(index)

    # -- membership

    async def _heartbeat(self) -> None:
        leaves = self._epoch > 0 and self._client.rng.random() < _LEAVES
        if not self._member_id:
            self._member_id = self._client.rng.randbytes(8).hex()
        owned = TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._positions))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=_LEAVE if leaves else self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=[owned] if self._positions else [],
        )
        answer = await self._client.send_to_coordinator(self._group, CONSUMER_GROUP_HEARTBEAT, request)
        if leaves or answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._member_id = ""
            self._epoch = _JOIN
            self._positions.clear()
        elif answer.error_code:
            raise Unanswered(ErrorCode(answer.error_code).name)
        else:
            self._joined(answer)

    def _joined(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            given = [i for topic in answer.assignment.topic_partitions for i in topic.partitions]
            self._positions = {index: self._positions.get(index) for index in given}

    # -- offsets

    async def _commit(self, index: int) -> None:
        offset = (self._positions[index] or 0) + 1
        committed = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(topic_id=self._topic_id, partitions=[committed])],
        )
        # Before the response: a commit that may be stored must not be repeated after a higher one.
        self._positions[index] = offset
        answer = await self._client.send_to_coordinator(self._group, OFFSET_COMMIT, request)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self._client.saw(Committed(self._group, TopicPartition(self._topic, index), offset))

    async def _where(self, index: int) -> None:
        partition = TopicPartition(self._topic, index)
        self._client.saw(CommitsRequested(self._group, partition))
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            topics=[OffsetFetchRequestTopics(topic_id=self._topic_id, partition_indexes=[index])],
        )
        coordinator = await self._client.find_coordinator(self._group)
        address = coordinator.host, coordinator.port
        answer = await self._client.send(address, OFFSET_FETCH, OffsetFetchRequest(groups=[group]))
        if answer.groups[0].error_code:
            raise Unanswered(ErrorCode(answer.groups[0].error_code).name)
        found = answer.groups[0].topics[0].partitions[0]
        if found.error_code == ErrorCode.NONE:
            answered = CommitsRead(self._group, partition, found.committed_offset, coordinator.node_id)
            self._client.saw(answered)
            self._positions[index] = max(self._positions.get(index) or 0, found.committed_offset, 0)

    @property
    def _topic_id(self) -> bytes:
        return self._client.topic_ids[self._topic]
