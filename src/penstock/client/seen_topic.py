"""The topic of processed idempotent keys: one for each topic of a group, with the same partitions.

Partition n has the keys of the messages of partition n, so a consumer loads only the keys of its own
partitions. A record is written in the transaction that commits the offset of its message. Its key is the
idempotent key, its value the offset of the message, its timestamp the time of processing. The topic is
compacted, and records older than the window are deleted.

A partition is loaded up to its high watermark, not only to the last stable offset. If the transaction of an
earlier owner is still undecided, the load waits for its outcome. Otherwise its keys would be missed.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import Consumer as _Librdkafka
from confluent_kafka import TopicPartition as _Place

from penstock.client.admin import Admin
from penstock.client.errors import ClientClosed, NotReachable, Refused, translated
from penstock.model.ids import TopicPartition

__all__ = ["SeenTopics", "seen_topic_name"]

#: called with the key and the time of each record
Sink = Callable[[bytes, int], None]
_NAME_BYTES: Final = 249
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9._-]")
_LOAD_TIMEOUT_S: Final = 120.0
_STEP_S: Final = 0.2
_RETRY_S: Final = 0.1
_HOUR_MS: Final = 3_600_000
_EXISTS: Final = 36
#: codes of a topic that was created just now: unknown, or without a leader
_NEW: Final = frozenset({3, 5, 6, -188, -190})


def seen_topic_name(group: str, topic: str) -> str:
    """The topic of the keys of a group's topic. A hash stands for characters that names cannot have."""
    name = f"{group}.{topic}.seen-keys"
    plain = _NOT_IN_NAMES.sub("_", name)
    if plain == name and len(name) <= _NAME_BYTES:
        return name
    return f"{plain[: _NAME_BYTES - 9]}-{zlib.crc32(name.encode()):08x}"


class SeenTopics:
    """The topics of one group."""

    def __init__(self, bootstrap: str, security: Mapping[str, Any], group: str, window_ms: int) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._group = group
        self._window_ms = window_ms

    def name(self, topic: str) -> str:
        return seen_topic_name(self._group, topic)

    async def load(self, partition: TopicPartition, sink: Sink, is_closing: Callable[[], bool]) -> None:
        """Read the keys of a partition; create the topic if there is none.

        `ClientClosed` if the consumer is closed before all of them are read.
        """
        name = self.name(partition.topic)
        end = await self._end(name, partition)
        if end > 0:
            place = TopicPartition(name, partition.partition)
            await asyncio.to_thread(self._read, place, end, sink, is_closing)

    async def _end(self, name: str, partition: TopicPartition) -> int:
        """The high watermark of the partition of keys."""
        deadline = time.monotonic() + _LOAD_TIMEOUT_S
        async with Admin(self._bootstrap, config=self._security) as admin:
            while True:
                try:
                    await self._ensure(admin, name, partition.topic)
                    return (await admin.end_offsets(name))[TopicPartition(name, partition.partition)]
                except (Refused, KeyError) as e:
                    new = isinstance(e, (NotReachable, KeyError)) or e.retriable or e.code in _NEW
                    if not new or time.monotonic() >= deadline:
                        raise
                await asyncio.sleep(_RETRY_S)

    async def _ensure(self, admin: Admin, name: str, topic: str) -> None:
        topics = await admin.topics()
        partitions = topics[topic].partitions
        existing = topics.get(name)
        if existing is None:
            segment_ms = max(60_000, min(self._window_ms, 24 * _HOUR_MS))
            config = {
                "cleanup.policy": "compact,delete",
                "retention.ms": str(self._window_ms + _HOUR_MS),
                "segment.ms": str(segment_ms),
            }
            try:
                await admin.create_topic(name, partitions=partitions, config=config)
            except Refused as e:
                if e.code != _EXISTS:
                    raise
        elif existing.partitions < partitions:
            await admin.add_partitions(name, partitions)

    def _read(self, place: TopicPartition, end: int, sink: Sink, is_closing: Callable[[], bool]) -> None:
        """Blocks until the committed records up to `end` are read."""
        consumer = _Librdkafka(
            {
                **self._security,
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        deadline = time.monotonic() + _LOAD_TIMEOUT_S
        try:
            consumer.assign([_Place(*place, OFFSET_BEGINNING)])
            while not is_closing():
                if _reached(consumer.poll(_STEP_S), end, sink):
                    return
                if time.monotonic() >= deadline:
                    raise NotReachable(
                        f"the processed keys in {place} were not read within {_LOAD_TIMEOUT_S:g} s. Check "
                        "that its leader is available, and that no transaction hangs there",
                        KafkaError._TIMED_OUT,
                        retriable=True,
                    )
            raise ClientClosed("consumer")
        except KafkaException as e:
            raise translated(e) from e
        finally:
            consumer.close()


def _reached(message: Any, end: int, sink: Sink) -> bool:
    """Take one polled message. Returns true if it was the last before `end`."""
    if message is None:
        return False
    error = message.error()
    if error is None:
        sink(message.key() or b"", message.timestamp()[1])
        return bool(message.offset() + 1 >= end)
    if error.code() == KafkaError._PARTITION_EOF:
        return bool(message.offset() >= end)
    if error.retriable() or error.code() in _NEW:
        return False
    raise translated(error)
