"""Readers, producers and a librdkafka for transactions, which answer what a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.client import Message, Record, TransactionFailed
from penstock.client.deliveries import DeliveryCallback
from penstock.client.errors import ClientError
from penstock.client.stopping import Stop
from penstock.client.transactions import GroupOffsets, Transactions

RETRIABLE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "again", retriable=True))


class Raw:
    """A message of librdkafka."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"%d" % self._offset

    value = key

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


class Reader:
    """Has messages 0 to 3, and closes when they are committed."""

    metadata = b""

    def __init__(self) -> None:
        self.waiting = [Message(Raw(n), bytes, bytes) for n in range(4)]
        #: what the group answers for the offsets of a transaction without an outcome
        self.committed = False
        self.stop = Stop()

    async def batch(self) -> list[Message]:
        if self.stop.is_set():
            return []
        taken, self.waiting = self.waiting[:3], self.waiting[3:]
        return taken

    def put_back(self, messages: Sequence[Message]) -> None:
        self.waiting = [*messages, *self.waiting]

    def assignment(self) -> set[Any]:
        return {("t", 0)}

    async def has_committed(self, offsets: Any) -> bool:
        return self.committed


class FakeTransaction:
    def __init__(self) -> None:
        self.failures: list[tuple[object, ClientError]] = []
        self.sent: list[tuple[str, int]] = []
        self.offsets: Any = None

    def sent_for(self, origin: Message) -> FakeTransaction:
        return self

    async def send_raw(self, topic: str, record: Record) -> None:
        self.sent.append((topic, int(record.value)))

    async def add_offsets(self, group: GroupOffsets) -> None:
        self.offsets = group.offsets


class FakeProducer:
    """Fails commits with the errors that a test has planned."""

    has_committed = False

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self.committed: list[FakeTransaction] = []
        self.failures: list[tuple[object, ClientError]] = []
        self.replaced = 0
        self.replaceable = True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[FakeTransaction]:
        transaction = FakeTransaction()
        yield transaction
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            transaction.failures += self.failures
            raise error
        self.committed.append(transaction)

    def is_replaceable(self, failure: TransactionFailed, elapsed_s: float) -> bool:
        return self.replaceable

    async def replace(self) -> None:
        self.replaced += 1


class Librdkafka:
    """Answers each call with the next of the errors that a test has planned for it."""

    def __init__(self, **errors: list[KafkaException | None]) -> None:
        self._errors = errors
        self.calls: list[str] = []
        self.in_commit: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_: Any) -> None:
            self.calls.append(name)
            if name == "commit_transaction":
                self.in_commit()
            planned = self._errors.get(name)
            error = planned.pop(0) if planned else None
            if error is not None:
                raise error

        return call


class Outlet:
    """Takes all messages."""

    def __init__(self) -> None:
        self.flushed = 0
        self.stop = Stop()

    async def enqueue(self, topic: str, record: Record, callback: DeliveryCallback) -> None: ...

    async def enqueue_raw(self, topic: str, record: Record, callback: DeliveryCallback) -> None: ...

    async def flush(self) -> None:
        self.flushed += 1


def transactions(rk: Librdkafka, fatal: list[TransactionFailed] | None = None) -> Transactions:
    return Transactions(rk, "id", Outlet(), (fatal if fatal is not None else []).append, lambda: None)
