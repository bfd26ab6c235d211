"""Members of a share group (KIP-932): they join, acquire records, acknowledge them, leave and rejoin.

A member has a share session on the leader of each of its partitions. It acknowledges what it holds in random
order and with random types, or lets the locks expire. It loses sessions with its requests that fail, and
sometimes acknowledges records in the next session that it had acquired in the last one.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.shares.states import AcknowledgeType
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.share_events import (
    ShareAck,
    ShareAcknowledged,
    ShareAcknowledging,
    ShareRefused,
)
from penstock.wire.apis.share_acknowledge import (
    SHARE_ACKNOWLEDGE,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.wire.apis.share_fetch import (
    SHARE_FETCH,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest

__all__ = ["ShareMember"]

_JOIN, _LEAVE, _CLOSE = 0, -1, -1
#: probabilities: of leaving the group, of ending without leaving, and of closing a session
_LEAVES: Final = 0.02
_VANISHES: Final = 0.01
_CLOSES: Final = 0.03
#: of reading the metadata again without an error: a replaced leader may still answer
_REFRESHES: Final = 0.1
#: of keeping records of a lost session, and of an acknowledgement per record held
_KEEPS: Final = 0.5
_ACKNOWLEDGES: Final = 0.7
#: of an own request for acknowledgements instead of the next ShareFetch
_SEPARATE: Final = 0.5
_KINDS: Final = (
    *6 * (AcknowledgeType.ACCEPT,),
    *2 * (AcknowledgeType.RELEASE,),
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)
_WAIT_MS: Final = 200


class _Held(NamedTuple):
    """Records that the member has acquired."""

    partition: TopicPartition
    first: int
    last: int
    delivery_count: int


class _Session:
    """A share session on one broker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: set[int] = set()
        self.held: list[_Held] = []

    def lose(self, rng: Random) -> None:
        self.epoch = 0
        self.partitions.clear()
        if rng.random() >= _KEEPS:
            self.held.clear()


class ShareMember:
    """One member of `group`, which reads `topic`. With `accepts_all`, it accepts every record."""

    def __init__(
        self, client: Client, group: str, topic: str, pause_s: float, *, accepts_all: bool = False
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._pause_s = pause_s
        self._accepts_all = accepts_all
        self._id = ""
        self._epoch = _JOIN
        self._assigned: set[int] = set()
        self._sessions: dict[int, _Session] = {}
        self.stopping = False

    async def run(self) -> None:
        client = self._client
        while not self.stopping:
            await asyncio.sleep(client.rng.random() * self._pause_s)
            try:
                if self._topic not in client.topic_ids:
                    await client.refresh(self._topic)
                await self._heartbeat()
                await self._work()
            except Unanswered:
                await client.backoff()

    # -- membership

    async def _heartbeat(self) -> None:
        rng = self._client.rng
        if not self._id:
            self._id = rng.randbytes(8).hex()
        leaves = self._epoch > 0 and not self._accepts_all and rng.random() < _LEAVES
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=_LEAVE if leaves else self._epoch,
            subscribed_topic_names=[self._topic],
        )
        answer = await self._client.send_to_coordinator(self._group, SHARE_GROUP_HEARTBEAT, request)
        vanishes = not self._accepts_all and rng.random() < _VANISHES
        if leaves or vanishes or answer.error_code in _REJOIN:
            self._id, self._epoch = "", _JOIN
            self._assigned.clear()
            for session in self._sessions.values():
                session.lose(rng)
        elif answer.error_code:
            raise Unanswered(ErrorCode(answer.error_code).name)
        else:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._assigned = {i for t in answer.assignment.topic_partitions for i in t.partitions}

    # -- deliveries

    async def _work(self) -> None:
        """One ShareFetch, or ShareAcknowledge, on each broker that leads a partition of the member."""
        rng = self._client.rng
        if rng.random() < _REFRESHES:
            self._client.forget_leaders(self._topic)
        leaders = await self._client.leaders(self._topic)
        nodes = {leaders[index] for index in self._assigned if leaders.get(index, -1) >= 0}
        for node_id in sorted(nodes):
            session = self._sessions.setdefault(node_id, _Session())
            wanted = {index for index in self._assigned if leaders.get(index) == node_id}
            acks = self._choose(session) if session.epoch else {}
            renews = any(a.kind is AcknowledgeType.RENEW for of in acks.values() for a in of)
            try:
                if session.epoch and not self._accepts_all and rng.random() < _CLOSES:
                    await self._acknowledge(node_id, session, acks, renews, is_last=True)
                elif acks and (renews or rng.random() < _SEPARATE):
                    await self._acknowledge(node_id, session, acks, renews)
                else:
                    await self._fetch(node_id, session, wanted, acks)
            except Unanswered:
                session.lose(rng)
                self._client.forget_leaders(self._topic)

    def _choose(self, session: _Session) -> dict[TopicPartition, list[ShareAck]]:
        """Acknowledgements for some of the records held; whole ranges, or parts of them."""
        rng = self._client.rng
        chosen: dict[TopicPartition, list[ShareAck]] = {}
        kept: list[_Held] = []
        for held in session.held:
            if not self._accepts_all and rng.random() >= _ACKNOWLEDGES:
                kept.append(held)
                continue
            kind = AcknowledgeType.ACCEPT if self._accepts_all else rng.choice(_KINDS)
            last = held.last if self._accepts_all else rng.randint(held.first, held.last)
            ack = ShareAck(held.first, last, kind, held.delivery_count)
            chosen.setdefault(held.partition, []).append(ack)
            if kind is AcknowledgeType.RENEW:
                kept.append(held)
            elif last < held.last:
                kept.append(held._replace(first=last + 1))
        session.held = kept
        for acks in chosen.values():
            acks.sort(key=lambda ack: ack.first)
        return chosen

    async def _fetch(
        self, node_id: int, session: _Session, wanted: set[int], acks: dict[TopicPartition, list[ShareAck]]
    ) -> None:
        client = self._client
        topic_id = client.topic_ids[self._topic]
        listed = sorted((wanted - session.partitions) | {p.partition for p in acks})
        topics = [
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=_batches(acks.get(TopicPartition(self._topic, index), [])),
                    )
                    for index in listed
                ],
            )
        ]
        forgotten = sorted(session.partitions - wanted)
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=session.epoch,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=client.rng.choice((1, 3, 20)),
            batch_size=client.rng.choice((1, 5, 20)),
            share_acquire_mode=client.rng.choice((0, 1)),
            topics=topics if listed else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=forgotten)]
            if forgotten
            else [],
        )
        self._sends(acks)
        answer = await client.send_to_node(node_id, SHARE_FETCH, request)
        if answer.error_code:
            raise Unanswered(ErrorCode(answer.error_code).name)
        session.epoch += 1
        session.partitions = wanted | {p.partition for p in acks}
        found = [data for topic in answer.responses for data in topic.partitions]
        self._answered(acks, {data.partition_index: data.acknowledge_error_code for data in found})
        for data in found:
            partition = TopicPartition(self._topic, data.partition_index)
            if data.error_code:
                client.forget_leaders(self._topic)
            session.held += [
                _Held(partition, a.first_offset, a.last_offset, a.delivery_count)
                for a in data.acquired_records
            ]

    async def _acknowledge(
        self,
        node_id: int,
        session: _Session,
        acks: dict[TopicPartition, list[ShareAck]],
        renews: bool,
        is_last: bool = False,
    ) -> None:
        client = self._client
        partitions = [
            AcknowledgePartition(partition_index=p.partition, acknowledgement_batches=_batches(of))
            for p, of in acks.items()
        ]
        topic = AcknowledgeTopic(topic_id=client.topic_ids[self._topic], partitions=partitions)
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=_CLOSE if is_last else session.epoch,
            is_renew_ack=renews,
            topics=[topic] if partitions else [],
        )
        self._sends(acks)
        answer = await client.send_to_node(node_id, SHARE_ACKNOWLEDGE, request)
        if answer.error_code:
            raise Unanswered(ErrorCode(answer.error_code).name)
        session.epoch += 1
        self._answered(
            acks, {d.partition_index: d.error_code for t in answer.responses for d in t.partitions}
        )
        if is_last:
            session.lose(client.rng)

    def _sends(self, acks: dict[TopicPartition, list[ShareAck]]) -> None:
        for partition, sent in acks.items():
            self._client.saw(ShareAcknowledging(partition, tuple(sent), self._id))

    def _answered(self, acks: dict[TopicPartition, list[ShareAck]], codes: dict[int, int]) -> None:
        for partition, sent in acks.items():
            code = codes.get(partition.partition)
            if code == ErrorCode.NONE:
                self._client.saw(ShareAcknowledged(partition, tuple(sent), self._id))
            elif code is not None:
                if code == ErrorCode.INVALID_RECORD_STATE:
                    self._client.saw(ShareRefused(partition, tuple(sent), self._id))
                self._client.forget_leaders(self._topic)


_REJOIN: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def _batches(acks: list[ShareAck]) -> list[Any]:
    return [
        AcknowledgementBatch(first_offset=a.first, last_offset=a.last, acknowledge_types=[a.kind])
        for a in acks
    ]
