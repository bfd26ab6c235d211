"""Runs a mover for each delay partition that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.shares.delay_mover import DelayMover
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.model.errors import ErrorCode
from penstock.ports import Clock, Workers
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["DELAY_KEY", "SOURCE_KEY", "DelayTopics"]

log = get_logger("delays")
DELAY_KEY: Final = "penstock.delay.target"
SOURCE_KEY: Final = "penstock.delay.source.enable"
#: how often the partitions that this broker leads are compared with the movers
_INTERVAL_S: Final = 0.5


class DelayTopics:
    """The movers of this broker, from `run` until it is cancelled."""

    def __init__(
        self,
        image: ClusterImage,
        partitions: Partitions,
        clock: Clock,
        workers: Workers,
        writer: TopicWriter,
        new_producer_id: Callable[[], int | None],
        is_restricted: bool,
    ) -> None:
        """With `is_restricted`, targets need penstock.delay.source.enable: clients have different rights."""
        self._image = image
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._writer = writer
        self._new_producer_id = new_producer_id
        self._is_restricted = is_restricted
        #: (topic, target) pairs that were refused and logged
        self._refused: set[tuple[str, str]] = set()
        self._tasks: dict[tuple[Partition, int, str], asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def is_target(self, topic: str) -> bool:
        """Returns true if messages of a delay topic go to the topic, or if it is a delay topic itself."""
        return any(
            configs.get(DELAY_KEY) == topic or (name == topic and configs.get(DELAY_KEY))
            for (kind, name), configs in self._image.configs.items()
            if kind == TOPIC
        )

    async def run(self) -> None:
        try:
            while True:
                self._changed.clear()
                self.review()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _INTERVAL_S)
        finally:
            for task in self._tasks.values():
                task.cancel()

    def metadata_changed(self, records: Iterable[Struct]) -> None:
        """Begin to move messages of a new delay topic at once."""
        if any(isinstance(record, ConfigRecord) and record.name == DELAY_KEY for record in records):
            self._changed.set()

    def review(self) -> None:
        """Start missing movers, and end those of partitions that this broker no longer leads."""
        wanted = {(p, p.leader_epoch, target): None for p, target in self._led()}
        for key in [key for key, task in self._tasks.items() if key not in wanted or task.done()]:
            self._tasks.pop(key).cancel()
        for key in wanted:
            if key not in self._tasks:
                partition, _, target = key
                mover = DelayMover(
                    partition,
                    target,
                    self._image,
                    self._clock,
                    self._workers,
                    self._writer,
                    self._new_producer_id,
                )
                task = asyncio.get_running_loop().create_task(mover.run())
                task.add_done_callback(_report)
                self._tasks[key] = task

    def _led(self) -> Iterator[tuple[Partition, str]]:
        for (kind, name), configs in self._image.configs.items():
            target = configs.get(DELAY_KEY)
            topic = self._image.topics.get(name)
            if kind != TOPIC or topic is None or not target:
                continue
            reason = self._refusal(name, target)
            if reason is not None:
                if (name, target) not in self._refused:
                    self._refused.add((name, target))
                    log.warning("delay_target_refused", topic=name, target=target, reason=reason)
                continue
            self._refused.discard((name, target))
            for index in topic.partitions:
                partition = self._partitions.find(name, index)
                if not isinstance(partition, ErrorCode) and partition.leading:
                    yield partition, target

    def _refusal(self, topic: str, target: str) -> str | None:
        """The reason why messages must not be moved to a target; None if they may."""
        configs = self._image.configs.get((TOPIC, target), {})
        if target.startswith("__"):
            return "the target is an internal topic"
        if target == topic or configs.get(DELAY_KEY):
            return "the target is a delay topic"
        if self._is_restricted and configs.get(SOURCE_KEY) != "true":
            return f"the target does not have {SOURCE_KEY}=true"
        return None


def _report(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("delay_mover_failed", error=repr(error), exc_info=error)
