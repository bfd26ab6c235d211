"""Runs a mover for each delay partition that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker.base.logs import get_logger, limited_warnings
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.shares.delay_mover import DelayCounts, DelayMover, MoverParts
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.model.errors import ErrorCode
from penstock.model.ticks import until_tick
from penstock.ports import Clock, Workers
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["DELAY_KEY", "SOURCE_KEY", "DelayTopics", "takes_delayed_messages"]

log = get_logger("delays")
DELAY_KEY: Final = "penstock.delay.target"
SOURCE_KEY: Final = "penstock.delay.source.enable"
#: how often the partitions that this broker leads are compared with the movers
_INTERVAL_S: Final = 0.5
#: the same without delay topics: the metadata records of a new one start a comparison at once
_IDLE_S: Final = 10.0
#: warnings of each kind that all movers of the broker log
_WARNINGS_PER_MINUTE: Final = 6
#: the longest pause before a mover that has failed is started again
_PAUSE_MAX_S: Final = 30.0

#: a partition, its leader epoch and its target
_Key: TypeAlias = tuple[Partition, int, str]


class _Restart(NamedTuple):
    """When a mover that has failed is started again, by the monotonic clock."""

    at_s: float
    pause_s: float


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
        message_bytes_max: Callable[[], int],
        is_restricted: bool,
        delete_delay_ms: int = 0,
    ) -> None:
        """`message_bytes_max` returns message.max.bytes of this broker.

        With `is_restricted`, targets need penstock.delay.source.enable: clients have different rights.
        `delete_delay_ms` is how long messages stay in the log after they were moved.
        """
        self._image = image
        self._partitions = partitions
        self.counts = DelayCounts()
        self._parts = MoverParts(
            image,
            clock,
            workers,
            writer,
            new_producer_id,
            self._message_bytes_max,
            self.counts,
            limited_warnings("delays", _WARNINGS_PER_MINUTE),
            delete_delay_ms,
        )
        self._default_bytes_max = message_bytes_max
        self._is_restricted = is_restricted
        #: (topic, target) pairs that were refused and logged
        self._refused: set[tuple[str, str]] = set()
        self._clock = clock
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        #: the movers of the tasks
        self._movers: dict[_Key, DelayMover] = {}
        self._restarts: dict[_Key, _Restart] = {}
        self._changed = asyncio.Event()

    @property
    def set_aside(self) -> int:
        """The number of messages that wait because their target refuses them."""
        return sum(mover.set_aside for mover in self._movers.values())

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._changed.clear()
                self.review()
                with suppress(TimeoutError):
                    async with asyncio.timeout(until_tick(loop.time(), self.interval_s)):
                        await self._changed.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()

    @property
    def interval_s(self) -> float:
        """The time until the next review.

        Why: idle brokers, of which a machine may have one per core, should wake up rarely.
        """
        kept = ((kind, configs) for (kind, _), configs in self._image.configs.items())
        return (
            _INTERVAL_S if any(kind == TOPIC and DELAY_KEY in configs for kind, configs in kept) else _IDLE_S
        )

    def metadata_changed(self, records: Iterable[Struct]) -> None:
        """Begin to move messages of a new delay topic at once."""
        if any(isinstance(record, ConfigRecord) and record.name == DELAY_KEY for record in records):
            self._changed.set()

    def review(self) -> None:
        """Start missing movers, and end those of partitions that this broker no longer leads."""
        wanted = {(p, p.leader_epoch, target): None for p, target in self._led()}
        for key in [key for key, task in self._tasks.items() if key not in wanted or task.done()]:
            task = self._tasks.pop(key)
            del self._movers[key]
            if _failure(task) is not None:
                self._pause(key)
            task.cancel()
        self._restarts = {key: restart for key, restart in self._restarts.items() if key in wanted}
        now_s = self._clock.monotonic()
        for key in wanted:
            restart = self._restarts.get(key)
            if key not in self._tasks and (restart is None or restart.at_s <= now_s):
                partition, _, target = key
                mover = self._movers[key] = DelayMover(partition, target, self._parts)
                task = asyncio.get_running_loop().create_task(mover.run())
                task.add_done_callback(_report)
                self._tasks[key] = task

    def _message_bytes_max(self, topic: str) -> int:
        text = self._image.topic_configs(topic).get("max.message.bytes")
        return self._default_bytes_max() if text is None else int(text)

    def _pause(self, key: _Key) -> None:
        """Start a mover later. The pause doubles with each failure, since each start reads the log again."""
        now_s, last = self._clock.monotonic(), self._restarts.get(key)
        pause_s = _INTERVAL_S
        if last is not None and now_s - last.at_s < _PAUSE_MAX_S:
            pause_s = min(2 * last.pause_s, _PAUSE_MAX_S)
        self._restarts[key] = _Restart(now_s + pause_s, pause_s)

    def _led(self) -> Iterator[tuple[Partition, str]]:
        for (kind, name), configs in self._image.configs.items():
            target = _target_of(configs)
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
        if target == topic or _target_of(configs):
            return "the target is a delay topic"
        if self._is_restricted and not _is_source(configs):
            return f"the target does not have {SOURCE_KEY}=true"
        return None


def takes_delayed_messages(image: ClusterImage, topic: str, *, is_restricted: bool) -> bool:
    """Returns true if movers of other brokers may write to the topic.

    A topic that was a target may get a batch that a mover could not finish. Without an authorizer, any client
    may write to all topics but internal ones, and so may movers. `is_restricted` is true with an authorizer.
    """
    configs = image.topic_configs(topic)
    if topic.startswith("__"):
        return False
    if not is_restricted or _is_source(configs) or _target_of(configs):
        return True
    return any(kind == TOPIC and _target_of(others) == topic for (kind, _), others in image.configs.items())


def _target_of(configs: Mapping[str, str]) -> str:
    """The target of a delay topic; empty for other topics. Values are in the image as users wrote them."""
    return configs.get(DELAY_KEY, "").strip()


def _is_source(configs: Mapping[str, str]) -> bool:
    return configs.get(SOURCE_KEY, "").strip().lower() == "true"


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    """The error that has ended a task."""
    return task.exception() if task.done() and not task.cancelled() else None


def _report(task: asyncio.Task[Any]) -> None:
    error = _failure(task)
    if error is not None:
        log.error("delay_mover_failed", error=repr(error), exc_info=error)
