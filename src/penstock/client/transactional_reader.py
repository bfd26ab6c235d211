"""The messages of an exactly-once consumer: what was delivered since the last transaction.

The group's metadata is taken when messages are fetched, on the thread that fetched them (KIP-447). If the
member is removed from its group afterwards, the coordinator refuses offsets with the older generation, and
the transaction is aborted. Metadata that is taken later could be that of no member at all, which
coordinators do not check.

Owned by: `Consumer`, on the event loop's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from penstock.client.errors import TransactionAborted
from penstock.client.fetching import Fetcher, Offsets
from penstock.client.message import Message
from penstock.client.stopping import Stop
from penstock.client.transactions import GroupOffsets
from penstock.model.ids import TopicPartition

__all__ = ["TransactionalReader", "is_member"]

#: librdkafka's serialized group metadata: a magic string, then the generation or member epoch
_MAGIC: Final = b"CGMDv2:"
#: the buffer holds at most so many batches before fetching pauses
_BATCHES: Final = 2


def is_member(metadata: bytes) -> bool:
    """Returns true if the metadata is that of a member of a group."""
    start = len(_MAGIC)
    generation = int.from_bytes(metadata[start : start + 4], sys.byteorder, signed=True)
    return metadata.startswith(_MAGIC) and generation > 0


class TransactionalReader:
    """Delivers messages in batches, and again if their transaction is aborted."""

    def __init__(
        self,
        fetcher: Fetcher,
        message: Callable[[Any], Message],
        max_batch: int,
        stop: Stop,
    ) -> None:
        self._fetcher = fetcher
        self._message = message
        self._max_batch = max_batch
        self.stop = stop
        #: of each partition the first and the next offset of what was delivered since the last transaction
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        #: partitions with such messages that the group has taken away
        self._lost: set[TopicPartition] = set()

    # -- for poll and `async for`

    def delivered(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._first.setdefault(message.topic_partition, message.offset)
            self._next[message.topic_partition] = message.offset + 1

    def transaction_offsets(self) -> GroupOffsets:
        metadata = self._fetcher.metadata
        if self._next and not is_member(metadata):
            raise TransactionAborted("this consumer has left its group", KafkaError.UNKNOWN_MEMBER_ID)
        if self._lost:
            names = ", ".join(sorted(map(str, self._lost)))
            raise TransactionAborted(f"the group has taken {names} away", KafkaError.ILLEGAL_GENERATION)
        return GroupOffsets(dict(self._next), metadata)

    async def transaction_ended(self, committed: bool) -> None:
        first = dict(self._first)
        self.forget(set(first))
        self._lost.clear()
        if not committed:
            assigned = self._fetcher.assignment()
            for partition, offset in first.items():
                if partition in assigned:
                    await self._fetcher.seek(partition, offset)

    def forget(self, partitions: set[TopicPartition]) -> None:
        for partition in partitions:
            self._first.pop(partition, None)
            self._next.pop(partition, None)

    def revoked(self, partitions: set[TopicPartition]) -> None:
        """The group takes partitions away: an open transaction with their messages must not commit."""
        self._lost |= partitions & self._first.keys()
        self.forget(partitions)

    # -- for run

    async def batch(self) -> list[Message]:
        """The next messages, as soon as there are any; none when the consumer is closed."""
        fetcher = self._fetcher
        if fetcher.buffer and not self.stop.is_set():
            await fetcher.serve(_BATCHES * self._max_batch)
        while not fetcher.buffer or not is_member(fetcher.metadata):
            if self.stop.is_set():
                return []
            await (fetcher.serve(0) if fetcher.buffer else fetcher.fill(self._max_batch, 1.0))
        if self.stop.is_set():
            return []
        count = min(len(fetcher.buffer), self._max_batch)
        return [self._message(fetcher.buffer.popleft()) for _ in range(count)]

    @property
    def metadata(self) -> bytes:
        return self._fetcher.metadata

    def assignment(self) -> set[TopicPartition]:
        return self._fetcher.assignment()

    def put_back(self, messages: Sequence[Message]) -> None:
        self._fetcher.put_back(messages)

    async def has_committed(self, offsets: Offsets) -> bool:
        """Returns true if the group's offsets are these or higher. Waits for pending transactions."""
        found = await self._fetcher.committed(offsets)
        return all(found.get(partition, -1) >= offset for partition, offset in offsets.items())
