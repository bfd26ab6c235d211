"""One instance of a transactional producer, in the protocol of transaction.version 1 or 2.

A session ends when it is fenced, or when it cannot know the state of its transaction: the caller then opens
another one, with a higher epoch. With version 1, requests that a broker executes late can change the next
transaction (KIP-890). So a version-1 session that gets no response to EndTxn or TxnOffsetCommit ends, and
sends neither again. With version 2, requests are retried, and copies of them arrive late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.records.record import Record, build_batch
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.transaction_events import (
    Ended,
    Ending,
    Initialized,
    Initializing,
    RefusedAsFenced,
    Transaction,
    TransactionalAck,
    TransactionalSend,
)
from penstock.testing.simulation.transaction_requests import (
    ADD_PARTITIONS_V1,
    ECHO,
    ECHO_S,
    END_TXN_V1,
    GROUP,
    PRODUCE_V1,
    TRANSACTION,
    TXN_OFFSET_COMMIT_V1,
    CoordinatorRequests,
    NotSent,
    TransactionalId,
)
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from penstock.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.apis.end_txn import END_TXN, EndTxnRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

__all__ = ["MustAbort", "Session", "SessionOver"]

#: attempts after which a client gives a batch up and aborts
_ATTEMPTS_MAX: Final = 12
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class SessionOver(Exception):
    """The session cannot continue: it is fenced, or an outcome is unknown."""


class MustAbort(Exception):
    """The open transaction has to be aborted."""


class Session:
    """One instance. `late` is a second client process, whose copies of requests arrive late."""

    def __init__(self, client: Client, late: Client | None, identity: TransactionalId) -> None:
        """Without `late` there are no late copies."""
        self._client = client
        self._late = late
        self._id = identity
        self._rng = client.rng
        self._instance = -1
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._number = 0
        self._added: set[object] = set()
        self._began_s = 0.0
        self._unanswered_before = 0
        self._coordinators = CoordinatorRequests(client, late, identity)

    @property
    def transaction(self) -> Transaction:
        return Transaction(self._id.name, self._instance, self._number)

    @property
    def is_open(self) -> bool:
        """Returns true if the transaction has partitions."""
        return bool(self._added)

    # -- the transaction coordinator

    async def _pause(self) -> None:
        await self._coordinators.pause(TRANSACTION, self._id.name)

    def _check(self, code: ErrorCode) -> None:
        """Raise if the error ends the transaction or the session."""
        if code in _FENCED:
            late_s = self._client.loop.time() - self._began_s
            certain = self._id.unanswered == self._unanswered_before and late_s < self._id.timeout_ms / 2000
            self._client.saw(RefusedAsFenced(self.transaction, code.name, certain))
            raise SessionOver(code.name)
        if code in _ABORTABLE:
            raise MustAbort(code.name)

    # -- InitProducerId

    async def open(self) -> None:
        """Get a producer epoch; this fences all instances before."""
        self._id.instances += 1
        self._instance = self._id.instances
        self._unanswered_before = self._id.unanswered
        self._client.saw(Initializing(self._id.name, self._instance))
        request = InitProducerIdRequest(
            transactional_id=self._id.name, transaction_timeout_ms=self._id.timeout_ms
        )
        while True:
            answer = await self._coordinators.send_until_answered(
                TRANSACTION, self._id.name, INIT_PRODUCER_ID, request
            )
            if answer.error_code == ErrorCode.NONE:
                break
            await self._pause()
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._client.saw(Initialized(self._id.name, self._instance, self._producer_id, self._epoch))

    def begin(self) -> Transaction:
        self._number += 1
        self._added.clear()
        self._began_s = self._client.loop.time()
        return self.transaction

    # -- records

    async def send(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Write records to one partition, and wait for the acknowledgement."""
        if self._id.version < 2 and partition not in self._added:
            await self._add([partition])
        self._added.add(partition)
        sequence = self._sequences.get(partition, 0)
        values = tuple(values)
        self._client.saw(TransactionalSend(self.transaction, partition, values))
        now_ms = self._client.clock.now_ms()
        data = build_batch(
            [Record(i, now_ms, None, value) for i, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = await self._produce(partition, data)
        self._sequences[partition] = sequence + len(values)
        self._client.saw(TransactionalAck(self.transaction, partition, values, offset))

    async def _produce(self, partition: TopicPartition, data: bytes) -> int | None:
        for _ in range(_ATTEMPTS_MAX):
            try:
                answer = await self._produce_once(self._client, partition, data)
            except Unanswered:
                self._id.unanswered += 1
                await self._client.backoff()
                continue
            code = ErrorCode(answer[0])
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                if self._late is not None and self._rng.random() < ECHO:
                    repeating = self._produce_late(self._late, partition, data)
                    asyncio.get_running_loop().create_task(repeating)
                return answer[1] if code is ErrorCode.NONE else None
            self._check(code)
            self._client.forget(partition)
            await self._client.backoff()
        raise MustAbort("given up")

    async def _produce_once(self, client: Client, partition: TopicPartition, data: bytes) -> tuple[int, int]:
        if partition.topic not in client.topic_ids:
            await client.refresh(partition.topic)
        topic = TopicProduceData(name=partition.topic, topic_id=client.topic_ids[partition.topic])
        topic.partition_data = [PartitionProduceData(index=partition.partition, records=memoryview(data))]
        request = ProduceRequest(transactional_id=self._id.name, acks=-1, timeout_ms=1500, topic_data=[topic])
        api = PRODUCE if self._id.version >= 2 else PRODUCE_V1
        answer = await client.send_to_leader(partition, api, request)
        result = answer.responses[0].partition_responses[0]
        return result.error_code, result.base_offset

    async def _produce_late(self, late: Client, partition: TopicPartition, data: bytes) -> None:
        await asyncio.sleep(self._rng.uniform(*ECHO_S))
        with suppress(Unanswered):
            await self._produce_once(late, partition, data)

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn, of version 1 only."""
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        while True:
            answer = await self._coordinators.send_until_answered(
                TRANSACTION, self._id.name, ADD_PARTITIONS_V1, request
            )
            codes = [
                ErrorCode(result.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            if all(code is ErrorCode.NONE for code in codes):
                return
            if ErrorCode.NONE in codes:
                raise Violation("partitions partly added", f"{self.transaction}: {codes}")
            for code in codes:
                self._check(code)
            if ErrorCode.OPERATION_NOT_ATTEMPTED in codes:
                return
            await self._pause()

    async def add_with_unknown(self, partition: TopicPartition) -> None:
        """Add a partition together with one that does not exist: neither may be added (version 1)."""
        if self._id.version < 2:
            await self._add([partition, TopicPartition(partition.topic, 99)])

    # -- offsets

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Store an offset when the transaction commits."""
        if self._id.version < 2:
            await self._add_offsets(group)
        self._added.add(group)
        where = TxnOffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id.name,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[where])],
        )
        api = TXN_OFFSET_COMMIT if self._id.version >= 2 else TXN_OFFSET_COMMIT_V1
        for _ in range(_ATTEMPTS_MAX):
            try:
                answer = await self._coordinators.send(GROUP, group, api, request)
            except NotSent:
                await self._coordinators.pause(GROUP, group)
                continue
            except Unanswered:
                if self._id.version < 2:
                    raise SessionOver("an offset commit was not answered") from None
                await self._coordinators.pause(GROUP, group)
                continue
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                if self._id.version >= 2:
                    self._coordinators.echo(GROUP, group, api, request)
                return
            self._check(code)
            await self._coordinators.pause(GROUP, group)
        raise MustAbort("given up")

    async def _add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )
        while True:
            answer = await self._coordinators.send_until_answered(
                TRANSACTION, self._id.name, ADD_OFFSETS_TO_TXN, request
            )
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return
            self._check(code)
            await self._pause()

    # -- EndTxn

    async def end(self, committed: bool) -> None:
        """End the transaction. Raises SessionOver if the session cannot start another one."""
        transaction = self.transaction
        self._client.saw(Ending(transaction, committed))
        request = EndTxnRequest(
            transactional_id=self._id.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        try:
            await self._end(transaction, request)
        finally:
            self._added.clear()

    async def _end(self, transaction: Transaction, request: EndTxnRequest) -> None:
        api = END_TXN if self._id.version >= 2 else END_TXN_V1
        is_first = True
        while True:
            try:
                answer = await self._coordinators.send(TRANSACTION, self._id.name, api, request)
            except NotSent:
                await self._pause()
                continue
            except Unanswered:
                is_first = False
                if self._id.version < 2:
                    self._client.saw(Ended(transaction, None if request.committed else False))
                    raise SessionOver("EndTxn was not answered") from None
                await self._pause()
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                break
            if code is ErrorCode.INVALID_TXN_STATE or code in _FENCED:
                # Refused. A commit that is refused at its first attempt has not been executed before, nor
                # one of an aborted transaction.
                is_known = is_first or code is ErrorCode.INVALID_TXN_STATE or not request.committed
                self._client.saw(Ended(transaction, False if is_known else None))
                if code in _FENCED:
                    self._check(code)
                raise SessionOver(code.name)
            # The record of a request that fails like this may be committed later.
            is_first = False
            await self._pause()
        self._client.saw(Ended(transaction, request.committed))
        if self._id.version >= 2:
            self._coordinators.echo(TRANSACTION, self._id.name, api, request)
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
