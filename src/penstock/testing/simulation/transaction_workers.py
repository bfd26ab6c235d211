"""Transactional workers: producers over several partitions, read-process-write workers, readers.

Two instances of each transactional id compete: one opens a session while the other may still use its own,
and so fences it. An instance may also end in the middle of a transaction, which must then time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.records.control import parse_end_transaction
from penstock.records.record import iter_batches, iter_records
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.transaction_checker import copy_value
from penstock.testing.simulation.transaction_events import StoredOffset, TransactionalRead
from penstock.testing.simulation.transaction_requests import TransactionalId
from penstock.testing.simulation.transaction_session import MustAbort, Session, SessionOver
from penstock.testing.simulation.workload import fetch
from penstock.wire.apis.fetch import PartitionData
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

__all__ = [
    "Copier",
    "LedgerWriter",
    "MixedCommitter",
    "TransactionReader",
    "TransactionalWorker",
    "stored_offset",
]

#: probabilities of a transaction
_ABORTS: Final = 0.2
_ABANDONS: Final = 0.08
_ADDS_UNKNOWN: Final = 0.1
_BATCHES_MAX: Final = 3
_RECORDS_MAX: Final = 2
_INPUTS_MAX: Final = 4


class TransactionalWorker:
    """Opens sessions, and runs transactions in each until it is over."""

    def __init__(
        self, client: Client, late: Client | None, identity: TransactionalId, pause_s: float
    ) -> None:
        self.client = client
        self._late = late
        self._identity = identity
        self._pause_s = pause_s
        self.stopping = False

    async def run(self) -> None:
        rng = self.client.rng
        while not self._stops():
            await asyncio.sleep(rng.random() * 4 * self._pause_s)
            if self._stops():
                return
            session = Session(self.client, self._late, self._identity)
            await session.open()
            try:
                await self.opened()
                for _ in range(rng.randint(2, 12)):
                    if self._stops():
                        break
                    await asyncio.sleep(rng.random() * self._pause_s)
                    await self._run_one(session)
            except SessionOver:
                continue

    def _stops(self) -> bool:
        return self.stopping

    async def _run_one(self, session: Session) -> None:
        session.begin()
        rng = self.client.rng
        try:
            await self.transact(session)
            if not session.is_open:
                return
            if rng.random() < _ABANDONS:
                # The process ends: no more requests of this session.
                raise SessionOver("abandoned")
            commits = rng.random() >= _ABORTS
        except MustAbort:
            if session.is_open:
                await session.end(False)
            # As clients do after an error: the next transaction has a higher epoch.
            raise SessionOver("aborted after an error") from None
        await session.end(commits)
        self.ended(commits)

    async def opened(self) -> None:
        """A session has begun."""

    async def transact(self, session: Session) -> None:
        """Write one transaction."""
        raise NotImplementedError

    def ended(self, committed: bool) -> None:
        """The transaction has ended as requested."""


class LedgerWriter(TransactionalWorker):
    """Writes transactions of several batches to several partitions."""

    def __init__(
        self,
        client: Client,
        late: Client,
        identity: TransactionalId,
        partitions: Sequence[TopicPartition],
        pause_s: float,
    ) -> None:
        super().__init__(client, late, identity, pause_s)
        self._partitions = partitions
        self._count = 0

    async def transact(self, session: Session) -> None:
        rng = self.client.rng
        if rng.random() < _ADDS_UNKNOWN:
            await session.add_with_unknown(rng.choice(self._partitions))
        for partition in rng.choices(self._partitions, k=rng.randint(1, _BATCHES_MAX)):
            values = []
            for _ in range(rng.randint(1, _RECORDS_MAX)):
                self._count += 1
                values.append(b"%s.%d" % (self.client.name.encode(), self._count))
            await session.send(partition, values)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * self._pause_s)


class Copier(TransactionalWorker):
    """Reads one input partition, writes a copy of each record, and commits its offset with the copies."""

    def __init__(
        self,
        client: Client,
        late: Client,
        identity: TransactionalId,
        source: TopicPartition,
        partitions: Sequence[TopicPartition],
        group: str,
        pause_s: float,
    ) -> None:
        super().__init__(client, late, identity, pause_s)
        self._source = source
        self._partitions = partitions
        self._group = group
        self._position = 0
        self._next = 0

    async def opened(self) -> None:
        """Continue behind the committed offset: earlier instances are fenced, and cannot move it."""
        self._position, _ = await stored_offset(self.client, self._group, self._source)

    async def transact(self, session: Session) -> None:
        inputs = await self._inputs()
        if not inputs:
            return
        rng, transaction = self.client.rng, session.transaction
        for offset in inputs:
            partition = rng.choice(self._partitions)
            await session.send(partition, [copy_value(self._source, offset, transaction)])
        self._next = inputs[-1] + 1
        await session.commit_offset(self._group, self._source, self._next)

    def ended(self, committed: bool) -> None:
        if committed:
            self._position = self._next

    async def _inputs(self) -> list[int]:
        try:
            answer = await fetch(self.client, self._source, self._position, 200)
        except Unanswered:
            await self.client.backoff()
            return []
        if answer.error_code or answer.records is None:
            self.client.forget(self._source)
            return []
        content, offsets = bytes(answer.records), []  # type: ignore[arg-type]
        try:
            for start, header in iter_batches(content):
                if not header.is_control:
                    batch = content[start : start + header.size]
                    offsets += [record.offset for record in iter_records(batch)]
        except CorruptMessage:
            return []
        return [offset for offset in offsets if offset >= self._position][:_INPUTS_MAX]


class MixedCommitter(TransactionalWorker):
    """Commits offsets of one group within and outside of a transaction: the later record counts.

    It has no late copies: one of TxnOffsetCommit would be a later record of the same transaction.
    """

    def __init__(
        self,
        client: Client,
        identity: TransactionalId,
        partition: TopicPartition,
        group: str,
        pause_s: float,
    ) -> None:
        super().__init__(client, None, identity, pause_s)
        self._partition = partition
        self._group = group
        self._offset = 0
        #: the offset that must be stored, None if it is unknown
        self._expected: int | None = None
        self._wrote_last = False
        #: requests of earlier transactions without a response
        self._unanswered = 0
        #: a commit outside of a transaction has an unknown outcome, and may still arrive
        self._is_doubtful = False

    async def transact(self, session: Session) -> None:
        if self._expected is not None and not self._is_doubtful:
            found, node_id = await stored_offset(self.client, self._group, self._partition)
            self.client.saw(StoredOffset(self._group, self._partition, found, self._expected, node_id))
        self._expected = None
        self._offset += 2
        self._unanswered = self._identity.unanswered
        await session.commit_offset(self._group, self._partition, self._offset)
        self._wrote_last = False
        if self.client.rng.random() < 0.5:
            self._wrote_last = await self._commit_plainly(self._offset + 1)
            self._is_doubtful |= not self._wrote_last

    def ended(self, committed: bool) -> None:
        if self._identity.unanswered > self._unanswered:
            return  # an offset commit of this transaction may have been stored twice
        if self._wrote_last:
            self._expected = self._offset + 1
        elif committed:
            self._expected = self._offset

    async def _commit_plainly(self, offset: int) -> bool:
        where = OffsetCommitRequestPartition(
            partition_index=self._partition.partition, committed_offset=offset
        )
        try:
            if self._partition.topic not in self.client.topic_ids:
                await self.client.refresh(self._partition.topic)
            topic = OffsetCommitRequestTopic(
                topic_id=self.client.topic_ids[self._partition.topic], partitions=[where]
            )
            request = OffsetCommitRequest(
                group_id=self._group, generation_id_or_member_epoch=-1, topics=[topic]
            )
            answer = await self.client.send_to_coordinator(self._group, OFFSET_COMMIT, request)
        except Unanswered:
            return False
        return answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def stored_offset(client: Client, group: str, partition: TopicPartition) -> tuple[int, int]:
    """The committed offset of a group, once no transaction is pending, and the node that answers.

    The offset is 0 if there is none.
    """
    while True:
        try:
            if partition.topic not in client.topic_ids:
                await client.refresh(partition.topic)
            wanted = OffsetFetchRequestTopics(
                topic_id=client.topic_ids[partition.topic], partition_indexes=[partition.partition]
            )
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True
            )
            coordinator = await client.find_coordinator(group)
            address = coordinator.host, coordinator.port
            answer = (await client.send(address, OFFSET_FETCH, request)).groups[0]
        except Unanswered:
            await client.backoff()
            continue
        if not answer.error_code:
            found = answer.topics[0].partitions[0]
            if found.error_code == ErrorCode.NONE:
                return max(0, found.committed_offset), coordinator.node_id
        await client.backoff()


class TransactionReader:
    """Reads partitions from the start, with one isolation level, and now and then from the start again."""

    def __init__(
        self, client: Client, partitions: Sequence[TopicPartition], committed: bool, rewind: float = 0.08
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._committed = committed
        self._rewind = rewind
        self.stopping = False

    async def run(self) -> None:
        positions = dict.fromkeys(self._partitions, 0)
        while not self.stopping:
            partition = self._client.rng.choice(self._partitions)
            if self._client.rng.random() < self._rewind:
                positions[partition] = 0
            positions[partition] = await self.read(partition, positions[partition], 200)

    async def read(self, partition: TopicPartition, position: int, max_wait_ms: int) -> int:
        """One fetch; returns the next position."""
        client = self._client
        try:
            answer = await fetch(client, partition, position, max_wait_ms, committed=self._committed)
        except Unanswered:
            await client.backoff()
            return position
        if answer.error_code:
            client.forget(partition)
            await client.backoff()
            return position
        try:
            records, end = visible(answer, position, self._committed)
        except CorruptMessage:
            await client.backoff()
            return position
        if end > position:
            client.saw(
                TransactionalRead(
                    partition, position, end, records, self._committed, answer.last_stable_offset
                )
            )
        return end


def visible(
    answer: PartitionData, position: int, committed: bool
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """The records that a consumer of this isolation level gets, and its next position."""
    content = b"" if answer.records is None else bytes(answer.records)  # type: ignore[arg-type]
    aborts = sorted((a.first_offset, a.producer_id) for a in answer.aborted_transactions or ())
    aborted: set[int] = set()
    found: list[tuple[int, bytes]] = []
    end = position
    for start, header in iter_batches(content):
        batch = content[start : start + header.size]
        while aborts and aborts[0][0] <= header.last_offset:
            aborted.add(aborts.pop(0)[1])
        end = max(end, header.next_offset)
        if header.is_control:
            marker = parse_end_transaction(batch)
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in aborted):
            found += [(record.offset, record.value or b"") for record in iter_records(batch)]
    return tuple(each for each in found if each[0] >= position), end
