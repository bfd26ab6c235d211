"""Skips messages whose idempotent key was processed within a window.

A key is claimed when its message is begun, in the order of the offsets. So of two messages with one key in
one transaction the second is skipped, in parallel runs too. Claimed keys are written in the same transaction
as the output. They count as processed when it is committed.

A key is forgotten when the window has passed since it was processed. If there are more keys than the limit,
the oldest ones are forgotten before that: a later duplicate of theirs is processed again. `evicted` counts
them. Memory: about 250 bytes per key, for a key of up to 64 bytes. A longer key is replaced by its BLAKE2b
hash.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, TypeAlias

from penstock.client.errors import MisusedClient
from penstock.client.message import Message, Record
from penstock.client.seen_topic import SeenTopics
from penstock.client.transactions import Transaction
from penstock.model.ids import TopicPartition

__all__ = ["KEY_BYTES", "IdempotentKey", "IdempotentKeys", "SeenKeys", "check_idempotent_keys", "stored_key"]

#: the name of a header, or a function; a message whose key is None is never skipped
IdempotentKey: TypeAlias = str | Callable[[Message], bytes | str | None]
_log = logging.getLogger("penstock.client")


class IdempotentKeys:
    """The keys of the partitions that a consumer has."""

    def __init__(
        self,
        key: IdempotentKey,
        window_ms: int,
        limit: int,
        topics: SeenTopics,
        is_closing: Callable[[], bool],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._key = key
        self._window_ms = window_ms
        self._limit = limit
        self._topics = topics
        self._is_closing = is_closing
        self._now_ms = now_ms
        self._partitions: dict[TopicPartition, SeenKeys] = {}
        #: the keys of the open transaction, with the offset of the message
        self._claimed: dict[TopicPartition, dict[bytes, int]] = {}
        self._claimed_ms = 0
        #: evictions that were logged
        self._reported: dict[TopicPartition, int] = {}

    async def load(self, partitions: set[TopicPartition]) -> None:
        """Read the keys of partitions that are new here."""
        for partition in partitions - self._partitions.keys():
            keys = SeenKeys(self._window_ms, self._limit)
            now_ms = self._now_ms()

            def sink(key: bytes, at_ms: int, keys: SeenKeys = keys, now_ms: int = now_ms) -> None:
                keys.add(key, at_ms, now_ms)

            await self._topics.load(partition, sink, self._is_closing)
            self._partitions[partition] = keys
            _log.info("loaded %d idempotent keys of %s", len(keys), partition)

    def claim(self, message: Message) -> bool:
        """Returns false if the message is a duplicate. Otherwise its key is part of the transaction."""
        key = self._key_of(message)
        if key is None:
            return True
        partition = message.topic_partition
        claimed = self._claimed.setdefault(partition, {})
        if key in claimed or self._partitions[partition].is_seen(key, self._now_ms()):
            return False
        claimed[key] = message.offset
        return True

    def _key_of(self, message: Message) -> bytes | None:
        if isinstance(self._key, str):
            found = next((value for name, value in message.headers if name == self._key), None)
        else:
            given = self._key(message)
            found = given.encode() if isinstance(given, str) else given
        return None if found is None else stored_key(found)

    async def write(self, transaction: Transaction) -> None:
        """Write the claimed keys into the transaction."""
        self._claimed_ms = self._now_ms()
        moment = datetime.fromtimestamp(self._claimed_ms / 1000, UTC)
        for (topic, partition), keys in self._claimed.items():
            name = self._topics.name(topic)
            for key, offset in keys.items():
                record = Record(value=b"%d" % offset, key=key, partition=partition, timestamp=moment)
                await transaction.send_raw(name, record)

    def ended(self, committed: bool) -> None:
        """The transaction has ended: its keys count as processed if it is committed."""
        claimed, self._claimed = self._claimed, {}
        if not committed:
            return
        for partition, keys in claimed.items():
            seen = self._partitions.get(partition)
            if seen is not None:
                for key in keys:
                    seen.add(key, self._claimed_ms, self._claimed_ms)
                self._report_evictions(partition, seen.evicted)

    def revoked(self, partitions: set[TopicPartition]) -> None:
        """Another consumer writes the keys of these partitions from now on."""
        for partition in partitions:
            self._partitions.pop(partition, None)
            self._reported.pop(partition, None)

    def _report_evictions(self, partition: TopicPartition, evicted: int) -> None:
        """Log the first eviction of a partition, and again whenever their number has doubled."""
        if evicted and evicted >= 2 * self._reported.get(partition, 0):
            self._reported[partition] = evicted
            _log.warning(
                "%d idempotent keys of %s were forgotten before their window ended: more than %d keys. "
                "Duplicates of them are processed again. Raise idempotent_max_keys, or shorten the window",
                evicted,
                partition,
                self._limit,
            )


def check_idempotent_keys(delivery: str, key: IdempotentKey | None, window: float, limit: int) -> None:
    """Raise MisusedClient if idempotent keys cannot work with these settings."""
    if key is not None and delivery != "exactly_once":
        raise MisusedClient("idempotent_key needs delivery='exactly_once': keys are written in transactions")
    if window <= 0 or limit < 1:
        raise MisusedClient("idempotent_window must be positive, and idempotent_max_keys at least 1")


#: the size of the largest key that is stored as it is, and of a hash
KEY_BYTES: Final = 64


def stored_key(key: bytes) -> bytes:
    """The key as it is stored: itself, or a hash of the same bound."""
    return key if len(key) <= KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest()


class SeenKeys:
    """The keys of messages that were handled. Invariant: at most `limit` keys."""

    def __init__(self, window_ms: int, limit: int) -> None:
        self._window_ms = window_ms
        self._limit = limit
        #: when each key was processed; the last one processed is at the end
        self._times: OrderedDict[bytes, int] = OrderedDict()
        #: keys that were forgotten within their window
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._times)

    def is_seen(self, key: bytes, now_ms: int) -> bool:
        """Returns true if the key was processed within the window."""
        at_ms = self._times.get(key)
        return at_ms is not None and now_ms - at_ms < self._window_ms

    def add(self, key: bytes, at_ms: int, now_ms: int) -> None:
        """Remember a key that was processed at that time, unless it is too long ago."""
        times = self._times
        while times and now_ms - next(iter(times.values())) >= self._window_ms:
            times.popitem(last=False)
        if now_ms - at_ms >= self._window_ms:
            return
        times[key] = at_ms
        times.move_to_end(key)
        while len(times) > self._limit:
            times.popitem(last=False)
            self.evicted += 1
