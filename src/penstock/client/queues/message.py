"""Messages of a queue, and the answers of brokers to their acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, NamedTuple, Protocol

from penstock.client.errors import ClientError, LockLost
from penstock.client.message import Message
from penstock.client.queues.outcomes import Outcome
from penstock.client.serializers import Decode
from penstock.records.record import Record

__all__ = [
    "Acknowledgement",
    "Decoders",
    "LockState",
    "Locks",
    "QueueMessage",
    "RawRecord",
    "TopicIdPartition",
    "confirm",
    "lock_lost",
    "lose",
    "remove_from",
]


class TopicIdPartition(NamedTuple):
    """A partition, with its topic's id."""

    topic_id: bytes
    partition: int


class Decoders(NamedTuple):
    """Decode the keys and the values of messages."""

    key: Decode
    value: Decode


class LockState(Enum):
    """The acquisition lock of a message, as far as this client knows."""

    #: delivered, or to be delivered, to this client alone
    HELD = "held"
    #: an outcome was chosen; the broker has not confirmed it
    SETTLED = "settled"
    CONFIRMED = "confirmed"
    #: expired, or released by the broker: the message is delivered again
    LOST = "lost"


class Acknowledgement:
    """An acknowledgement on its way to the broker. `await` it to wait for the broker's answer.

    Without `await` it is sent all the same, with the next request to the broker.
    """

    __slots__ = ("_error", "_hurry", "_is_done", "_waiter")

    def __init__(self, hurry: Callable[[], None]) -> None:
        """`hurry` is called when a task waits for the answer."""
        self._hurry = hurry
        self._is_done = False
        self._error: ClientError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_done(self) -> bool:
        return self._is_done

    def resolve(self, error: ClientError | None) -> None:
        """The broker has answered, or never will."""
        if self._is_done:
            return
        self._is_done, self._error = True, error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_done:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
                self._hurry()
            # Several tasks may wait: the end of one must not end the others.
            yield from asyncio.shield(self._waiter).__await__()
        if self._error is not None:
            raise self._error


class RawRecord:
    """A record with the calls of librdkafka's messages."""

    __slots__ = ("_kind", "_partition", "_record", "_topic")

    def __init__(self, topic: str, partition: int, record: Record, is_log_append_time: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._record = record
        self._kind = 2 if is_log_append_time else 1

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._record.headers)

    def timestamp(self) -> tuple[int, int]:
        return self._kind, self._record.timestamp


class Locks(Protocol):
    """Takes the outcomes of messages."""

    def settle(self, message: QueueMessage, outcome: Outcome) -> Acknowledgement: ...

    def drop(self, message: QueueMessage) -> None: ...


class QueueMessage(Message):
    """A message that this client alone has, until it acknowledges the message or the lock expires.

    `accept`, `release` and `reject` are final. `renew` starts the lock again. Each can be awaited for the
    broker's answer: `LockLost` if the message is delivered again.
    """

    __slots__ = (
        "_locks",
        "acknowledgement",
        "acquired_s",
        "deadline_s",
        "delivery_count",
        "loss",
        "place",
        "renewal",
        "state",
    )

    def __init__(
        self, raw: RawRecord, decoders: Decoders, place: TopicIdPartition, delivery_count: int, locks: Locks
    ) -> None:
        super().__init__(raw, decoders.key, decoders.value)
        self._locks = locks
        self.place = place
        #: how often the message was delivered, this time included
        self.delivery_count = delivery_count
        self.state = LockState.HELD
        #: why the lock was lost
        self.loss = ""
        #: when the message was acquired, and when its lock expires, by the event loop's clock
        self.acquired_s = 0.0
        self.deadline_s = 0.0
        self.acknowledgement: Acknowledgement | None = None
        self.renewal: Acknowledgement | None = None

    @property
    def is_held(self) -> bool:
        """Returns true until an outcome is chosen or the lock is lost."""
        return self.state is LockState.HELD

    def accept(self) -> Acknowledgement:
        """The message is processed: it is not delivered again."""
        return self._locks.settle(self, Outcome.ACCEPT)

    def release(self) -> Acknowledgement:
        """The message can be delivered again, to any member, unless this was its last delivery."""
        return self._locks.settle(self, Outcome.RELEASE)

    def reject(self) -> Acknowledgement:
        """The message cannot be processed: it is not delivered again. It becomes a dead letter if the group
        has a dead-letter topic."""
        return self._locks.settle(self, Outcome.REJECT)

    def renew(self) -> Acknowledgement:
        """Start the lock again: the message is this client's for another lock duration."""
        return self._locks.settle(self, Outcome.RENEW)

    def expire(self) -> None:
        """The lock has expired before the message was delivered."""
        self._locks.drop(self)


def remove_from(messages: dict[TopicIdPartition, dict[int, QueueMessage]], message: QueueMessage) -> None:
    found = messages.get(message.place)
    if found is not None:
        found.pop(message.offset, None)
        if not found:
            del messages[message.place]


def lock_lost(message: QueueMessage, reason: str) -> LockLost:
    return LockLost(message.topic_partition, message.offset, reason)


def lose(message: QueueMessage, reason: str) -> None:
    message.state, message.loss = LockState.LOST, reason
    _resolve(message, lock_lost(message, reason))


def confirm(message: QueueMessage) -> None:
    message.state = LockState.CONFIRMED
    _resolve(message, None)


def _resolve(message: QueueMessage, error: LockLost | None) -> None:
    for answer in (message.acknowledgement, message.renewal):
        if answer is not None:
            answer.resolve(error)
    message.renewal = None
