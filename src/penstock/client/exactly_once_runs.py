"""Makes the runs of an exactly-once consumer from its settings: the producer, and the processed keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from penstock.client.exactly_once import ExactlyOnce, Job, Limits
from penstock.client.idempotent_keys import IdempotentKey, IdempotentKeys
from penstock.client.producer import Producer
from penstock.client.run_producer import RunProducer
from penstock.client.seen_topic import SeenTopics
from penstock.client.stopping import Stopped
from penstock.client.transactional_reader import TransactionalReader
from penstock.model.ids import TopicPartition

__all__ = ["ExactlyOnceRuns", "ExactlyOnceSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceSettings:
    """`security` are the settings of librdkafka for other clients of the same cluster."""

    bootstrap: str
    security: Mapping[str, Any]
    group: str
    #: None makes a random id
    transactional_id: str | None
    timeout_s: float
    commit_interval_s: float
    idempotent_key: IdempotentKey | None
    window_s: float
    #: of each partition
    max_keys: int
    #: of the producer, as of the consumer
    connect_timeout_s: float | None
    random_id: str = field(default_factory=lambda: uuid4().hex)

    def idempotent_keys(self, is_closing: Callable[[], bool]) -> IdempotentKeys | None:
        if self.idempotent_key is None:
            return None
        window_ms = round(self.window_s * 1000)
        topics = SeenTopics(self.bootstrap, self.security, self.group, window_ms)
        return IdempotentKeys(self.idempotent_key, window_ms, self.max_keys, topics, is_closing)

    def producer(self) -> Producer:
        return Producer(
            self.bootstrap,
            transactional_id=self.transactional_id or f"{self.group}-{self.random_id}",
            transaction_timeout=self.timeout_s,
            connect_timeout=self.connect_timeout_s,
            config=self.security,
        )


class ExactlyOnceRuns:
    """The runs of one consumer, one at a time."""

    def __init__(self, settings: ExactlyOnceSettings, reader: TransactionalReader) -> None:
        self.settings = settings
        self.reader = reader
        self._keys = settings.idempotent_keys(reader.stop.is_set)
        self._current: ExactlyOnce | None = None

    async def run(self, job: Job, given: Producer | None) -> None:
        settings = self.settings
        producer = RunProducer(
            given,
            settings.producer,
            is_shared_id=settings.transactional_id is not None,
            timeout_s=settings.timeout_s,
            stop=self.reader.stop,
        )
        with suppress(Stopped):
            async with producer:
                limits = Limits(settings.commit_interval_s, settings.timeout_s)
                self._current = ExactlyOnce(job, limits, self.reader, producer, self._keys)
                try:
                    await self._current.run()
                finally:
                    self._current = None

    def revoked(self, partitions: set[TopicPartition]) -> None:
        self.reader.revoked(partitions)
        if self._keys is not None:
            self._keys.revoked(partitions)

    async def idle(self) -> None:
        """Wait until no run has an open transaction."""
        if self._current is not None:
            await self._current.idle()
