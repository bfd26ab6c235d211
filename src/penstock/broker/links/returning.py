"""Compares the log of a returning topic with the source, as the leader of the partition.

The topic had records of its own before, and is read-only now. Nothing is cut here: the result is reported,
and the command that returns the topic has the metadata cut the logs (`metadata/mirror_cuts.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.broker.links.mirrored_partition import Comparison, MirroredPartition, whole_batches
from penstock.broker.links.source_cluster import SourceCluster, SourceError, SourceTopic
from penstock.broker.replica.given_offsets import BATCHES_MAX
from penstock.broker.replica.log_ranges import log_ranges
from penstock.linking.common_point import CommonPoint, Range
from penstock.linking.definition import LinkDefinition
from penstock.linking.mirror import LastBatch
from penstock.model.config.mirrored_topics import LINK_CONFIG, MirroredTopic
from penstock.model.errors import PolicyViolation, error_name
from penstock.model.ids import TopicPartition
from penstock.ports import Workers
from penstock.records.batch import BatchHeader, read_header
from penstock.replication.fetch_plan import PartitionKey
from penstock.storage.log import Log
from penstock.storage.scan import CorruptLog

__all__ = ["Returning"]

log = get_logger("links")
#: partitions that are compared at once
_AT_ONCE: Final = 4
_RETRY_S: Final = 1.0


class Returning:
    """The comparisons of one link on one broker. Owned by the event loop's thread."""

    def __init__(
        self, source: SourceCluster, definition: Callable[[], LinkDefinition], workers: Workers
    ) -> None:
        self._source = source
        self._definition = definition
        self._workers = workers
        self._tasks: dict[PartitionKey, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def compare(self, mirrored: MirroredPartition) -> None:
        """Begin to compare a partition, unless that is done or under way."""
        key = _key(mirrored)
        if mirrored.comparison is None and key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run(mirrored))

    def forget(self, mirrored: MirroredPartition) -> None:
        task = self._tasks.pop(_key(mirrored), None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, mirrored: MirroredPartition) -> None:
        while mirrored.is_led:
            try:
                async with self._slots:
                    mirrored.comparison = await self._compared(mirrored)
            except Exception as e:  # noqa: BLE001 - nothing would compare the partition again
                mirrored.mirror.failed(str(e) or repr(e), 0)
                await asyncio.sleep(_RETRY_S)
            else:
                found = mirrored.comparison._asdict()
                log.info("link_log_compared", partition=mirrored.partition.name, **found)
                mirrored.mirror.reason = ""
                return

    async def _compared(self, mirrored: MirroredPartition) -> Comparison:
        partition, own = mirrored.partition, mirrored.partition.log
        if self._definition().paused:
            raise SourceError("the link is paused")
        if own.config.remote_storage_enable:
            raise PolicyViolation("topics with tiered storage cannot return: delete the topic, and mirror it")
        if own.high_watermark < own.end_offset:
            raise SourceError("the end of the log is not committed yet")
        topic, leader, known = await self._find(mirrored)
        key = TopicPartition(topic.name, partition.index)
        source = Range(*await self._source.log_range(key, leader))
        epochs = own.leader_epochs.starts
        end_offset = own.end_offset
        point = CommonPoint(Range(own.log_start_offset, end_offset), source, epochs, known)
        while (probe := point.next) is not None:
            batches = await self._batches(own, probe.offset, end_offset)
            at = max(source.start, probe.offset)
            point.compared(batches, await self._fetched(topic, key, leader, at))
        if own.end_offset != end_offset or not mirrored.is_led:
            raise SourceError("the log has changed meanwhile")
        records = await self._records(own, max(point.offset, own.log_start_offset), end_offset)
        return Comparison(point.offset, records, partition.leader_epoch, topic.topic_id)

    async def _batches(self, own: Log, offset: int, end_offset: int) -> list[LastBatch]:
        """The first batches of the log from `offset` on. Damaged ones are left out: they are different."""
        try:
            async for each in log_ranges(own, offset, end_offset, self._workers, 1):
                return await in_slices(_in_steps(each.headers))
        except CorruptLog as e:
            log.warning("returning_log_damaged", error=str(e))
        return []

    async def _records(self, own: Log, start: int, end_offset: int) -> int:
        """The records of producers from `start` on; where they cannot be read, the number of offsets."""
        records, reached = 0, start
        try:
            async for each in log_ranges(own, start, end_offset, self._workers):
                records += each.records
                reached = each.headers[-1].next_offset
        except CorruptLog as e:
            log.warning("returning_log_damaged", error=str(e))
        return records + max(0, end_offset - reached)

    async def _find(self, mirrored: MirroredPartition) -> tuple[SourceTopic, int, int | None]:
        """The topic at the source, the leader there, and the end of what it has mirrored from here."""
        await self._source.refresh()
        name, index = mirrored.topic.source_topic, mirrored.partition.index
        topic = self._source.topics.get(name)
        if topic is None:
            raise SourceError(f"the source has no topic {name}")
        if topic.topic_id == mirrored.partition.topic_id:
            raise SourceError("the source of the link is this cluster")
        if not self._definition().mirrors(name):
            raise SourceError(f"topic {name} is not one of the topics of the link")
        if index not in topic.partitions:
            raise SourceError(f"topic {name} has no partition {index} at the source")
        leader = topic.partitions[index].leader
        if self._source.address(leader) is None:
            raise SourceError("the partition has no leader at the source")
        text = (await self._source.configs([name])).get(name, {}).get(LINK_CONFIG)
        there = MirroredTopic.parse(text) if text else None
        if there is None or there.is_source or there.source_id != mirrored.partition.topic_id:
            return topic, leader, None
        if there.is_read_only:
            raise PolicyViolation(
                f"the source mirrors topic {name} from this cluster: promote it there, or fail over, first"
            )
        return topic, leader, there.ends[index] if index < len(there.ends) else None

    async def _fetched(
        self, topic: SourceTopic, key: TopicPartition, leader: int, offset: int
    ) -> list[LastBatch]:
        """The batches of the source from the one that has `offset` on."""
        data = await self._source.fetch(topic, key.partition, leader, offset)
        if data.error_code:
            raise SourceError(f"{key} cannot be read from {offset}: {error_name(data.error_code)}")
        whole = whole_batches(memoryview(data.records or b""))  # type: ignore[arg-type]
        return await in_slices(_in_steps(_headers(await in_slices(whole))))


def _headers(records: memoryview) -> Iterator[BatchHeader]:
    position = 0
    while position < len(records):
        header = read_header(records, position)
        yield header
        position += header.size


def _in_steps(headers: Iterable[BatchHeader]) -> Generator[None, None, list[LastBatch]]:
    """What is compared of batches: there may be thousands of one record in a megabyte."""
    batches: list[LastBatch] = []
    for header in headers:
        batches.append(LastBatch.of(header))
        if not len(batches) % BATCHES_MAX:
            yield
    return batches


def _key(mirrored: MirroredPartition) -> PartitionKey:
    return mirrored.partition.topic_id, mirrored.partition.index
