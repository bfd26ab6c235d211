"""The Kafka side of a bridge: a topic as target and as source."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from penstock.bridge.errors import ConnectionLost, WriteFailed
from penstock.bridge.mapping import KAFKA, from_record
from penstock.bridge.message import Bridged, copy_headers
from penstock.bridge.offsets import OffsetTracker
from penstock.bridge.ports import Done
from penstock.client import (
    Admin,
    ClientError,
    Consumer,
    Delivery,
    NotReachable,
    Producer,
    Record,
    Refused,
    TopicPartition,
)

__all__ = ["TopicSource", "TopicTarget"]

#: the broker's limit is the one that counts
_MESSAGE_BYTES_MAX: Final = 128 << 20
_CLOSE_S: Final = 5.0
#: the group has its partitions, and no record has come for so long: there are none
_QUIET_S: Final = 10.0


class TopicTarget:
    """Writes to a topic. A message is stored when all in-sync replicas have it (acks=all)."""

    system = KAFKA

    def __init__(
        self, bootstrap: str, topic: str, config: Mapping[str, Any] | None = None, delivery_s: float = 120.0
    ) -> None:
        self._topic = topic
        self._producer = Producer(
            bootstrap,
            acks="all",
            idempotence=True,
            max_message_size=_MESSAGE_BYTES_MAX,
            delivery_timeout=delivery_s,
            client_id="penstock-bridge",
            config=config,
        )

    @property
    def name(self) -> str:
        return f"topic {self._topic}"

    async def open(self) -> None:
        await self._producer.start()

    async def write(self, message: Bridged, done: Done) -> None:
        record = Record(value=message.body, key=message.key, headers=copy_headers(message))
        await self._producer.enqueue_raw(self._topic, record, partial(_stored, done))

    async def close(self) -> None:
        # The bridge has waited for the writes. Those that are left are delivered again by the source.
        with suppress(ClientError, TimeoutError):
            await asyncio.wait_for(self._producer.close(), _CLOSE_S)


def _stored(done: Done, delivery: Delivery | None, error: ClientError | None) -> None:
    if error is None:
        done(None)
    else:
        retriable = isinstance(error, NotReachable) or (isinstance(error, Refused) and error.retriable)
        done(WriteFailed(str(error), retriable=retriable))


class TopicSource:
    """Reads a topic as a member of a group. Offsets are committed without gaps: a restart skips nothing."""

    #: records are not locked
    lock_s = None

    def __init__(
        self, bootstrap: str, topic: str, group: str, config: Mapping[str, Any] | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._config = config
        self._consumer: Consumer | None = None
        self._offsets = OffsetTracker()
        self._quiet_since = 0.0

    @property
    def name(self) -> str:
        return f"topic {self._topic}"

    async def open(self) -> None:
        self._offsets = OffsetTracker()
        self._quiet_since = self._now()
        self._consumer = Consumer(
            self._bootstrap,
            self._topic,
            group=self._group,
            auto_commit=False,
            client_id="penstock-bridge",
            config=self._config,
        )
        try:
            await self._consumer.start()
        except ClientError as error:
            raise ConnectionLost(str(error)) from error

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        try:
            messages = await self._running.poll(limit, wait=wait_s)
        except ClientError as error:
            raise ConnectionLost(str(error)) from error
        if messages:
            self._quiet_since = self._now()
        found = []
        for message in messages:
            self._offsets.deliver(message.topic_partition, message.offset)
            at = message.timestamp
            found.append(
                from_record(
                    topic=message.topic,
                    partition=message.partition,
                    offset=message.offset,
                    key=message.raw_key,
                    value=message.raw_value,
                    headers=message.headers,
                    time_ms=None if at is None else round(at.timestamp() * 1000),
                    handle=(message.topic_partition, message.offset),
                )
            )
        return found

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        partitions: set[TopicPartition] = set()
        for message in messages:
            partition, offset = message.handle
            self._offsets.finish(partition, offset)
            partitions.add(partition)
        try:
            await self._running.commit({each: self._offsets.committable(each) for each in partitions})
        except ClientError as error:
            raise ConnectionLost(str(error)) from error

    async def release(self, messages: Sequence[Bridged]) -> None:
        """A consumer cannot give back single records: it starts again at the committed offsets."""
        raise ConnectionLost(f"{len(messages)} records were not copied and are read again")

    async def extend(self, messages: Sequence[Bridged]) -> None:
        """Records are not locked."""

    async def is_drained(self) -> bool:
        """Returns true if all offsets are committed, or no record has come for long.

        The last offsets may be transaction markers, or records that retention has deleted.
        """
        if not self._running.assignment():
            self._quiet_since = self._now()
            return False
        try:
            async with Admin(self._bootstrap, config=self._config) as admin:
                ends = await admin.end_offsets(self._topic)
            committed = await self._running.committed()
        except ClientError as error:
            raise ConnectionLost(str(error)) from error
        assigned = {place: end for place, end in ends.items() if place in self._running.assignment()}
        if all(committed.get(place, 0) == end for place, end in assigned.items()):
            return True
        return self._now() - self._quiet_since > _QUIET_S

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(ClientError):
                await consumer.close()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    @property
    def _running(self) -> Consumer:
        assert self._consumer is not None, "not open"
        return self._consumer
