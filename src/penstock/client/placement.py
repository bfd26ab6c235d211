"""Partitioners in Python, and the partition counts that they need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from penstock.client.errors import MisusedClient, translated
from penstock.client.partitioners import Partitioner

__all__ = ["UNASSIGNED", "Placement"]

#: librdkafka chooses the partition
UNASSIGNED: Final = -1
#: As librdkafka's topic.metadata.refresh.interval.ms: partitions that are added are used that soon.
_MAX_AGE = 300.0
_METADATA_TIMEOUT = 10.0


class Placement:
    """Places messages with a function; remembers how many partitions topics have."""

    def __init__(
        self, new_partitioner: Callable[[], Partitioner], rk: Any, *, only_keyless: bool = False
    ) -> None:
        """Each topic has its own partitioner. `only_keyless` leaves messages with a key to librdkafka."""
        self._new_partitioner = new_partitioner
        self._only_keyless = only_keyless
        self._rk = rk
        self._partitioners: dict[str, Partitioner] = {}
        #: topic -> (partitions, when it was learnt)
        self._counts: dict[str, tuple[int, float]] = {}
        self._requests: dict[str, asyncio.Task[int]] = {}

    async def learn(self, topic: str) -> int:
        """Request the number of partitions from the cluster, unless a recent value is known."""
        known = self._counts.get(topic)
        if known is not None and time.monotonic() - known[1] < _MAX_AGE:
            return known[0]
        if topic not in self._requests:
            # One request for all waiting senders, which continue in the order of their calls.
            self._requests[topic] = asyncio.create_task(self._request_count(topic))
        return await asyncio.shield(self._requests[topic])

    async def _request_count(self, topic: str) -> int:
        try:
            metadata = await asyncio.to_thread(self._rk.list_topics, topic, _METADATA_TIMEOUT)
        except KafkaException as e:
            raise translated(e) from e
        finally:
            del self._requests[topic]
        found = metadata.topics[topic]
        if found.error is not None:
            raise translated(found.error)
        self._counts[topic] = len(found.partitions), time.monotonic()
        return len(found.partitions)

    def place(self, topic: str, key: bytes | None) -> int:
        if self._only_keyless and key is not None:
            return UNASSIGNED
        known = self._counts.get(topic)
        if known is None:
            raise MisusedClient(
                f"the partitioner needs the number of partitions of {topic!r}: await "
                f"producer.partitions({topic!r}) "
                "before the first send_nowait, or await send"
            )
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = self._partitioners[topic] = self._new_partitioner()
        partition = partitioner(key, known[0])
        if not 0 <= partition < known[0]:
            raise MisusedClient(
                f"the partitioner chose {partition}, {topic!r} has partitions 0 to {known[0] - 1}"
            )
        return partition
