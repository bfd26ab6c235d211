"""Runs a handler exactly once: its output and the offsets of its messages are one transaction.

A transaction covers the messages that were available when it began, up to `max_batch`, and ends early after
`commit_interval`. Messages are fetched between transactions only, so a rebalance never falls into one: the
group waits until it has ended. If a handler raises, the transaction is aborted and all its messages are
handled again: those before the failed one first, in a transaction of their own, then the failed one alone.
So a message that always fails costs the others one repetition. After the last attempt the failed message
goes to the dead-letter topic, in the transaction that commits its offset.

| what fails | what happens |
|---|---|
| the handler, or the delivery of a message that it sent for good | abort, count an attempt, handle again |
| brokers, the coordinator, the membership | abort, handle again, without counting an attempt |
| the producer is fenced after a transaction timeout | a new producer; the group's offsets show the outcome |
| the producer is fenced by another one with the same id | the run ends with `ProducerFenced` |
| the consumer is closed, and the transaction does not end in time | the run abandons it and ends |

Owned by: `Consumer.run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.client.dead_letters import dead_letter_headers
from penstock.client.errors import (
    ClientError,
    HandlerFailed,
    NotReachable,
    Refused,
    TransactionAborted,
    TransactionFailed,
)
from penstock.client.fetching import Offsets
from penstock.client.handling import IN_HANDLER
from penstock.client.lanes import Lanes
from penstock.client.message import Message, Record
from penstock.client.retrying import RetryPolicy
from penstock.client.run_producer import RunProducer
from penstock.client.stopping import Stopped
from penstock.client.tracing import Tracing
from penstock.client.transactional_reader import TransactionalReader
from penstock.client.transactions import GroupOffsets, Transaction
from penstock.model.ids import TopicPartition

__all__ = ["Duplicates", "ExactlyOnce", "Job", "Limits", "TransactionalHandler"]

TransactionalHandler: TypeAlias = Callable[[Message, Transaction], Awaitable[object]]
_log = logging.getLogger("penstock.client")
#: A handler may use so much of the transaction's timeout; the commit has the rest.
_HANDLER_SHARE: Final = 0.8
#: the pauses after transactions that brokers aborted
_ABORTED: Final = RetryPolicy(backoff=0.05, max_backoff=2.0)
#: codes of messages that no retry delivers: too large, refused, no such topic or partition
_UNDELIVERABLE: Final = frozenset({3, 10, 17, 18, 29, 87, -188, -190})
#: codes of missing permissions for the group, the cluster and the transactional id
_FORBIDDEN: Final = frozenset({30, 31, 53})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The handling of each message in a run."""

    handler: TransactionalHandler
    #: handlers at a time; None handles one message after the other
    concurrency: int | None
    retry: RetryPolicy
    dead_letter: str | None
    group: str
    tracing: Tracing | None


class Limits(NamedTuple):
    """The times of a transaction."""

    #: no message is begun after it
    commit_interval_s: float
    #: the coordinator aborts the transaction after it
    timeout_s: float


class Duplicates(Protocol):
    """Skips messages whose key was processed before."""

    async def load(self, partitions: set[TopicPartition]) -> None:
        """Read the keys of partitions that are new here."""

    def claim(self, message: Message) -> bool:
        """Returns false if the message is a duplicate. Otherwise its key is part of the transaction."""

    async def write(self, transaction: Transaction) -> None:
        """Write the claimed keys into the transaction."""

    def ended(self, committed: bool) -> None: ...


class _HandlerRaised(Exception):
    """A handler's error, with its message."""

    def __init__(self, message: Message, error: Exception) -> None:
        super().__init__(error)
        self.message = message
        self.error = error


@dataclass(slots=True)
class _Failed:
    """A message whose handler has failed."""

    attempts: int = 0
    error: Exception | None = None
    #: the next transaction sends it to the dead-letter topic
    is_dead: bool = False


class _Work:
    """The messages of one transaction. Those from `begun` on are left for the next one."""

    def __init__(self, messages: Sequence[Message], began_s: float, limits: Limits) -> None:
        self.messages = messages
        self.began_s = began_s
        self.begun = 0
        self.ends_s = began_s + limits.commit_interval_s
        self.handlers_end_s = began_s + limits.timeout_s * _HANDLER_SHARE

    def offsets(self) -> Offsets:
        return {m.topic_partition: m.offset + 1 for m in self.messages[: self.begun]}


class ExactlyOnce:
    """One run of a handler, until the consumer is closed."""

    def __init__(
        self,
        job: Job,
        limits: Limits,
        reader: TransactionalReader,
        producer: RunProducer,
        duplicates: Duplicates | None,
    ) -> None:
        self._job = job
        self._limits = limits
        self._reader = reader
        self._stop = reader.stop
        self._producer = producer
        self._duplicates = duplicates
        self._failed: dict[tuple[TopicPartition, int], _Failed] = {}
        #: transactions in a row that brokers have aborted
        self._aborted = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Wait until no transaction is open."""
        await self._idle.wait()

    async def run(self) -> None:
        while batch := await self._reader.batch():
            self._idle.clear()
            try:
                failure = await self._process(batch)
            finally:
                self._idle.set()
            if failure is not None:
                await self._after(failure)

    def _cut(self, batch: list[Message]) -> list[Message]:
        """The messages of the next transaction: a message that has failed gets one of its own."""
        for index, message in enumerate(batch):
            if _place(message) in self._failed:
                return batch[: index or 1]
        return batch

    async def _process(self, batch: list[Message]) -> Exception | None:
        """Handle messages in one transaction. If it is aborted, put them back and return the reason."""
        messages = self._cut(batch)
        self._reader.put_back(batch[len(messages) :])
        work = _Work(messages, asyncio.get_running_loop().time(), self._limits)
        try:
            if self._duplicates is not None:
                partitions = {message.topic_partition for message in messages}
                await self._stop.interrupting(self._duplicates.load(partitions))
            await self._in_transaction(work)
        except (_HandlerRaised, TransactionAborted) as e:
            self._end(work, committed=False)
            return e
        except Stopped:
            self._end(work, committed=False)
            return None
        except TransactionFailed as e:
            self._end(work, committed=await self._recovered(e, work))
            return None
        except BaseException:
            self._end(work, committed=self._producer.has_committed)
            raise
        self._end(work, committed=True)
        return None

    async def _in_transaction(self, work: _Work) -> None:
        metadata = self._reader.metadata
        failures: list[tuple[object, ClientError]] = []
        try:
            async with self._producer.transaction() as transaction:
                failures = transaction.failures
                async with self._stop.limiting():
                    await self._handle(transaction, work)
                    if self._duplicates is not None:
                        await self._duplicates.write(transaction)
                    await transaction.add_offsets(GroupOffsets(work.offsets(), metadata))
        except TransactionAborted as e:
            for message, error in failures[:1]:
                if isinstance(message, Message) and _code(error) in _UNDELIVERABLE:
                    raise _HandlerRaised(message, error) from e
            raise

    async def _handle(self, transaction: Transaction, work: _Work) -> None:
        if self._job.concurrency is None:
            for message in self._fresh(work):
                await self._call(transaction, work, message)
            return

        async def call(message: Message) -> None:
            await self._call(transaction, work, message)

        try:
            async with asyncio.TaskGroup() as group:
                lanes = Lanes(call, self._job.concurrency, group)
                for message in self._fresh(work):
                    await lanes.room()
                    lanes.add(message)
        except ExceptionGroup as failures:
            # The first is the reason: it has cancelled the others.
            raise failures.exceptions[0] from None

    def _fresh(self, work: _Work) -> Iterator[Message]:
        """The messages to handle, in order, without duplicates, until it is time to commit."""
        loop = asyncio.get_running_loop()
        for message in work.messages:
            if work.begun and (self._stop.is_set() or loop.time() >= work.ends_s):
                return
            work.begun += 1
            if self._is_fresh(message):
                yield message

    def _is_fresh(self, message: Message) -> bool:
        failed = self._failed.get(_place(message))
        if self._duplicates is None or (failed is not None and failed.is_dead):
            return True
        try:
            return self._duplicates.claim(message)
        except Exception as e:
            raise _HandlerRaised(message, e) from e

    async def _call(self, transaction: Transaction, work: _Work, message: Message) -> None:
        """Call the handler, or send its message to the dead-letter topic."""
        failed = self._failed.get(_place(message))
        if failed is not None and failed.is_dead:
            await self._bury(transaction, message, failed)
            return
        tracing = self._job.tracing
        token = IN_HANDLER.set(True)
        limit = asyncio.timeout_at(work.handlers_end_s)
        try:
            with nullcontext() if tracing is None else tracing.processing(message):
                async with limit:
                    await self._job.handler(message, transaction.sent_for(message))
        except Exception as e:
            if transaction.failures and _code(transaction.failures[0][1]) not in _UNDELIVERABLE:
                # The transaction was broken before the handler was: this is no attempt of the handler.
                raise TransactionAborted(e, _code(transaction.failures[0][1])) from e
            raise _HandlerRaised(message, self._timed_out() if limit.expired() else e) from e
        finally:
            IN_HANDLER.reset(token)

    def _timed_out(self) -> TimeoutError:
        return TimeoutError(
            f"the handler took longer than {_HANDLER_SHARE:.0%} of the transaction's timeout, "
            f"{self._limits.timeout_s:g} s: raise transaction_timeout"
        )

    async def _bury(self, transaction: Transaction, message: Message, failed: _Failed) -> None:
        assert self._job.dead_letter is not None
        assert failed.error is not None
        headers = dead_letter_headers(message, failed.error, failed.attempts, self._job.group)
        record = Record(
            value=message.raw_value, key=message.raw_key, headers=headers, timestamp=message.timestamp
        )
        await transaction.send_raw(self._job.dead_letter, record)

    # -- after a transaction

    def _end(self, work: _Work, *, committed: bool) -> None:
        """Forget committed messages. Uncommitted ones are delivered again."""
        if self._duplicates is not None:
            self._duplicates.ended(committed)
        if not committed:
            self._reader.put_back(work.messages)
            return
        self._aborted = 0
        for message in work.messages[: work.begun]:
            self._failed.pop(_place(message), None)
        self._reader.put_back(work.messages[work.begun :])

    async def _after(self, failure: Exception) -> None:
        if isinstance(failure, _HandlerRaised):
            await self._count(failure.message, failure.error)
            return
        if _code(failure) in _FORBIDDEN:
            raise failure
        _log.warning("transaction aborted, its messages are handled again: %s", failure)
        self._aborted += 1
        await self._stop.sleep(_ABORTED.delay(self._aborted - 1))

    async def _count(self, message: Message, error: Exception) -> None:
        """Count a failed attempt, and wait before the next one."""
        assigned = self._reader.assignment()
        self._failed = {place: failed for place, failed in self._failed.items() if place[0] in assigned}
        failed = self._failed.setdefault(_place(message), _Failed())
        failed.attempts += 1
        failed.error = error
        retry = self._job.retry
        if retry.worth_another(error) and failed.attempts < retry.attempts:
            await self._stop.sleep(retry.delay(failed.attempts - 1))
        elif self._job.dead_letter is not None:
            failed.is_dead = True
        else:
            self._failed.pop(_place(message))
            raise HandlerFailed(message.topic_partition, message.offset, failed.attempts, error) from error

    async def _recovered(self, failure: TransactionFailed, work: _Work) -> bool:
        """Replace the producer. Returns true if the failed transaction turns out to be committed."""
        elapsed_s = asyncio.get_running_loop().time() - work.began_s
        if not self._producer.is_replaceable(failure, elapsed_s):
            self._end(work, committed=False)
            raise failure
        _log.warning("transactional producer is replaced: %s", failure)
        with suppress(Stopped):
            await self._producer.replace()
        # This is not interrupted: librdkafka's consumer must not be closed during a call.
        while failure.outcome_unknown and not self._stop.is_set():
            try:
                return await self._reader.has_committed(work.offsets())
            except NotReachable as e:
                _log.warning("the group's offsets are not known yet: %s", e)
        return False


def _place(message: Message) -> tuple[TopicPartition, int]:
    return message.topic_partition, message.offset


def _code(error: Exception) -> int:
    """The code of a refusal; 0 for any other error."""
    return error.code if isinstance(error, (Refused, TransactionAborted)) else 0
