"""Transactions of a producer: begin, offsets, commit, abort.

librdkafka's calls block and are resumed after a timeout, so each runs on a thread in short steps. A commit is
not interrupted: a task that is cancelled during one waits for its outcome.

Errors of librdkafka fall into three classes:

- retriable: the call is made again;
- abortable: the transaction is aborted, and `TransactionAborted` is raised;
- fatal: the producer is closed, and `TransactionFailed` is raised.

Invariant: the messages of a transaction are acknowledged before its offsets are sent. A group that has
accepted the offsets has them only for output that is in the log.

Owned by: `Producer`, on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as _Place

from penstock.client.deliveries import DeliveryCallback
from penstock.client.errors import (
    ClientError,
    DeliveryFailed,
    MisusedClient,
    NotReachable,
    ProducerFenced,
    Refused,
    TransactionAborted,
    TransactionFailed,
    translated,
)
from penstock.client.message import Delivery, Headers, Record, delayed
from penstock.client.retrying import RetryPolicy
from penstock.client.stopping import Stop, Stopped
from penstock.model.ids import TopicPartition

__all__ = ["GroupOffsets", "OffsetSource", "Outlet", "Transaction", "Transactions", "Work"]

T = TypeVar("T")
Work: TypeAlias = Callable[["Transaction"], Awaitable[T]]
_log = logging.getLogger("penstock.client")
#: how long one call of librdkafka occupies a thread
_STEP_S: Final = 1.0
#: How long an outcome may take: coordinators fail over and reload within seconds.
_END_TIMEOUT_S: Final = 120.0
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, 90})


class GroupOffsets(NamedTuple):
    """Offsets to commit, and the membership that they were read with (KIP-447)."""

    offsets: Mapping[TopicPartition, int]
    metadata: bytes


class OffsetSource(Protocol):
    """A consumer whose offsets become part of a transaction."""

    def transaction_offsets(self) -> GroupOffsets:
        """The offsets of all delivered messages; `TransactionAborted` if a partition of theirs is lost."""

    async def transaction_ended(self, committed: bool) -> None:
        """After a commit: forget what was delivered. After an abort: deliver it again."""


class Outlet(Protocol):
    """The part of `Producer` that a transaction uses."""

    stop: Stop

    async def enqueue(self, topic: str, record: Record, callback: DeliveryCallback) -> None: ...

    async def enqueue_raw(self, topic: str, record: Record, callback: DeliveryCallback) -> None: ...

    async def flush(self) -> None: ...


class _Open:
    """The state of the open transaction."""

    __slots__ = ("failures", "sources")

    def __init__(self, sources: tuple[OffsetSource, ...]) -> None:
        self.sources: list[OffsetSource] = list(sources)
        #: messages that were not delivered: with the origin that the sender stated
        self.failures: list[tuple[object, ClientError]] = []


class _Receipt:
    """Receives the result of one message: an error of the call itself, or of the delivery later."""

    __slots__ = ("_open", "_origin", "error", "queued")

    def __init__(self, opened: _Open, origin: object) -> None:
        self._open = opened
        self._origin = origin
        self.queued = False
        self.error: ClientError | None = None

    def __call__(self, delivery: Delivery | None, error: ClientError | None) -> None:
        if error is not None:
            self.error = error
            if self.queued or isinstance(error, Refused):
                self._open.failures.append((self._origin, error))


class Transaction:
    """An open transaction. Its messages are visible to `read_committed` consumers when it is committed."""

    def __init__(self, transactions: Transactions, opened: _Open, origin: object = None) -> None:
        self._transactions = transactions
        self._open = opened
        self._origin = origin

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
        partition: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Put a message into the queue, and wait only while the queue is full.

        The commit waits for the acknowledgement. A message that is not delivered aborts the transaction.
        `delay` or `deliver_at` are for delay topics: the broker moves the message to the target topic then,
        if the transaction is committed.
        """
        record = Record(
            value=value,
            key=key,
            headers=delayed(headers, delay, deliver_at),
            timestamp=timestamp,
            partition=partition,
        )
        await self._put(self._transactions.outlet.enqueue, topic, record)

    async def send_raw(self, topic: str, record: Record) -> None:
        """As `send`, for a key and a value that are bytes already."""
        await self._put(self._transactions.outlet.enqueue_raw, topic, record)

    async def _put(
        self, enqueue: Callable[[str, Record, DeliveryCallback], Awaitable[None]], topic: str, record: Record
    ) -> None:
        receipt = _Receipt(self._open, self._origin)
        await enqueue(topic, record, receipt)
        receipt.queued = True
        if receipt.error is not None:
            raise receipt.error

    async def commit_offsets(self, consumer: OffsetSource) -> None:
        """Commit the offsets of all messages that the consumer has delivered, with this transaction.

        If the transaction is aborted, the consumer delivers them again.
        """
        if consumer not in self._open.sources:
            self._open.sources.append(consumer)
        await self.add_offsets(consumer.transaction_offsets())

    async def add_offsets(self, group: GroupOffsets) -> None:
        """Commit these offsets with this transaction."""
        if group.offsets:
            await self._transactions.send_offsets(group)

    def sent_for(self, origin: object) -> Transaction:
        """The same transaction; `failures` name this origin for the messages sent through the result."""
        return Transaction(self._transactions, self._open, origin)

    @property
    def failures(self) -> list[tuple[object, ClientError]]:
        """The messages that were not delivered: their origin, and the error."""
        return self._open.failures


class Transactions:
    """The transactions of one producer, one at a time."""

    def __init__(
        self,
        rk: Any,
        transactional_id: str,
        outlet: Outlet,
        on_fatal: Callable[[TransactionFailed], None],
        on_aborted: Callable[[], None],
    ) -> None:
        self._rk = rk
        self._id = transactional_id
        self.outlet = outlet
        self._on_fatal = on_fatal
        self._on_aborted = on_aborted
        self.is_open = False
        self._committing = False
        #: the outcome of the last transaction; None while one is open, or if it is unknown
        self.committed: bool | None = None

    async def init(self, check_contact: Callable[[], Awaitable[None]]) -> None:
        """Fence earlier producers with the same transactional id, and wait until their transactions ended.

        `check_contact` raises if no broker has answered in time. `Stopped` if the consumer is closed first.
        """

        async def check() -> None:
            if self.outlet.stop.is_set():
                raise Stopped
            await check_contact()

        await self._call("init_transactions", self._rk.init_transactions, check)

    async def close(self) -> None:
        """Abort a transaction that is still open."""
        if self.is_open:
            await self._abort()

    @asynccontextmanager
    async def scope(self, *sources: OffsetSource) -> AsyncIterator[Transaction]:
        """Commits at the end, with the offsets of these consumers; aborts if the body raises."""
        opened = self._begin(sources)
        transaction = Transaction(self, opened)
        try:
            yield transaction
            for source in sources:
                await transaction.commit_offsets(source)
            await _uninterrupted(self._commit())
        except BaseException as e:
            await self._end_after(e, opened)
            raise
        await self._settle(opened, committed=True)

    async def transact(self, work: Work[T], sources: tuple[OffsetSource, ...], retry: RetryPolicy) -> T:
        """Run `work` in a transaction, and again in a new one if it is aborted."""
        delays = retry.delays()
        while True:
            try:
                async with self.scope(*sources) as transaction:
                    return await work(transaction)
            except TransactionAborted as e:
                delay = next(delays, None)
                if delay is None:
                    raise
                _log.warning("transaction of %s aborted, running it again: %s", self._id, e)
            await asyncio.sleep(delay)

    def _begin(self, sources: tuple[OffsetSource, ...]) -> _Open:
        if self.is_open:
            raise MisusedClient(
                "this producer has an open transaction: end it first, or use a producer with another id"
            )
        try:
            self._rk.begin_transaction()
        except KafkaException as e:
            if e.args[0].fatal():
                raise self._fatal(e.args[0]) from e
            raise translated(e) from e
        self.is_open, self.committed = True, None
        return _Open(sources)

    async def _end_after(self, error: BaseException, opened: _Open) -> None:
        """End the transaction after an error of its body or of its commit."""
        if self.committed:  # the task was cancelled while the commit succeeded
            await self._settle(opened, committed=True)
            return
        if not isinstance(error, TransactionFailed):
            await _uninterrupted(self._abort())
        if self.committed is False:
            await self._settle(opened, committed=False)
        if isinstance(error, (Refused, DeliveryFailed)):
            first = error.first if isinstance(error, DeliveryFailed) else error
            raise TransactionAborted(error, getattr(first, "code", -1)) from error

    async def _settle(self, opened: _Open, *, committed: bool) -> None:
        for source in opened.sources:
            await source.transaction_ended(committed)

    async def send_offsets(self, group: GroupOffsets) -> None:
        """Wait for the acknowledgements of all messages, then add offsets to the transaction."""
        await self.outlet.flush()
        places = [_Place(topic, partition, offset) for (topic, partition), offset in group.offsets.items()]
        await self._call(
            "send_offsets_to_transaction",
            lambda step: self._rk.send_offsets_to_transaction(places, group.metadata, step),
        )

    async def _commit(self) -> None:
        self._committing = True
        try:
            await self._call("commit_transaction", self._rk.commit_transaction)
            self.is_open, self.committed = False, True
        finally:
            self._committing = False

    async def _abort(self) -> None:
        try:
            await self._call("abort_transaction", self._rk.abort_transaction)
            self.is_open, self.committed = False, False
        finally:
            self._on_aborted()

    async def _call(
        self,
        name: str,
        call: Callable[[float], object],
        check_contact: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make a call until librdkafka has an outcome for it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _END_TIMEOUT_S
        while True:
            try:
                await _uninterrupted(asyncio.to_thread(call, _STEP_S))
                return
            except KafkaException as e:
                error = e.args[0]
                if error.fatal():
                    raise self._fatal(error) from e
                if error.txn_requires_abort():
                    raise TransactionAborted(f"{error.name()}: {error.str()}", int(error.code())) from e
                if not error.retriable():
                    raise translated(e) from e
                if loop.time() >= min(deadline, self.outlet.stop.deadline_s):
                    raise self._timed_out(name, error) from e
            if check_contact is not None:
                await check_contact()

    def _timed_out(self, name: str, error: Any) -> ClientError:
        limit = "at the end of close" if self.outlet.stop.is_set() else f"after {_END_TIMEOUT_S:g} s"
        text = f"{name} of {self._id!r} has no outcome {limit} ({error.str()})"
        if not self.is_open:
            return NotReachable(
                f"{text}. Check the cluster, and try again", int(error.code()), retriable=True
            )
        return self._close(
            TransactionFailed(
                f"{text}: this producer is closed. Make a new one with the same transactional_id, which "
                "completes the transaction",
                outcome_unknown=self._committing,
                is_timeout=True,
            )
        )

    def _fatal(self, error: Any) -> TransactionFailed:
        unknown = self._committing
        if int(error.code()) not in _FENCED:
            text = f"{error.name()}: {error.str()}. This producer is closed: make a new one"
            return self._close(TransactionFailed(text, outcome_unknown=unknown))
        return self._close(
            ProducerFenced(
                f"the producer {self._id!r} was fenced ({error.str()}) and is closed: a newer producer has "
                "the same transactional_id, or the transaction took longer than transaction_timeout. Give "
                "each producer an id of its own, or make transactions shorter",
                outcome_unknown=unknown,
            )
        )

    def _close(self, failure: TransactionFailed) -> TransactionFailed:
        self.is_open = False
        if not failure.outcome_unknown:
            self.committed = False
        self._on_fatal(failure)
        return failure


async def _uninterrupted(coroutine: Coroutine[Any, Any, object]) -> None:
    """Wait for the outcome, even if the calling task is cancelled meanwhile."""
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is raised instead
        raise
