"""Samples the high watermarks of the partitions that groups have committed offsets of, or share groups read.

Only the coordinator of a group reports its lag, and the leaders of the partitions may be other brokers. So
each coordinator sends one request to each leader per round. It requests only partitions of topics with a
committed offset, and forgets them with the last one. A partition without a committed offset counts from its
first record (`observability.lag`); a second request to its leader asks for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

from penstock.broker.monitoring.slices import in_slices
from penstock.broker.monitoring.sources import Sources
from penstock.broker.replica.partition import Partition
from penstock.groups.survey import GroupSurvey
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId
from penstock.model.ticks import until_tick
from penstock.observability.lag import OffsetHistory, partition_lag
from penstock.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["GroupLag", "TopicLag"]

#: the time between two rounds
INTERVAL_S: Final = 5.0
_LATEST: Final = -1
_EARLIEST: Final = -2
#: a client, so that the answer is the high watermark
_CONSUMER: Final = -1

#: sends ListOffsets to a broker; raises PenstockError if there is no response
ListOffsets = Callable[[int, ListOffsetsRequest], Awaitable[ListOffsetsResponse]]
Key = tuple[str, int]


class TopicLag:
    """The lag of a group in one topic, and in its partitions."""

    __slots__ = ("partitions", "records", "seconds")

    def __init__(self) -> None:
        #: also those of partitions without a committed offset
        self.records = 0
        self.seconds = 0.0
        #: partitions with a committed offset: (partition, committed offset, lag), without a lag while the
        #: high watermark is not known
        self.partitions: list[tuple[int, int, int | None]] = []


class GroupLag:
    """High watermarks by partition, sampled from `start` to `stop`."""

    def __init__(self, sources: Sources, list_offsets: ListOffsets) -> None:
        self._sources = sources
        self._list_offsets = list_offsets
        self._histories: dict[Key, OffsetHistory] = {}
        #: first offsets of partitions that a group has not committed in a topic that it reads
        self._starts: dict[Key, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def groups(self) -> Iterator[GroupSurvey]:
        """The groups that this broker coordinates."""
        runtime = self._sources.groups
        for index in list(runtime.indexes()):
            shard = runtime.shard(index)
            if shard is not None:
                yield from shard.survey()

    def share_partitions(self) -> Iterator[tuple[str, str, int, int, int]]:
        """Group, topic, partition, start offset and finished records of the share partitions of this broker.

        Share partitions whose start offset is not chosen yet are left out.
        """
        runtime, topics = self._sources.shares.coordinator.runtime, self._sources.image.topics_by_id
        for index in list(runtime.indexes()):
            shard = runtime.shard(index)
            for key, state in () if shard is None else shard.survey():
                topic = topics.get(TopicId(key.topic_id))
                if topic is not None and state.start_offset >= 0:
                    complete = max(0, state.delivery_complete_count)
                    yield key.group_id, topic.name, key.partition, state.start_offset, complete

    def end_of(self, topic: str, index: int) -> int | None:
        """The sampled high watermark of a partition; None if it is not known."""
        history = self._histories.get((topic, index))
        return None if history is None else history.end

    def seconds_behind(self, topic: str, index: int, offset: int) -> float:
        """For how long the record at an offset of a partition has been readable; 0 if it is not."""
        history = self._histories.get((topic, index))
        return 0.0 if history is None else history.lag_seconds(offset, self._sources.clock.monotonic())

    def of_topic(self, survey: GroupSurvey, topic: str) -> TopicLag:
        lag, now_s = TopicLag(), self._sources.clock.monotonic()
        for index, committed in list(survey.offsets.get(topic, {}).items()):
            history = self._histories.get((topic, index))
            end = None if history is None else history.end
            behind = partition_lag(committed.offset, None, end)
            lag.partitions.append((index, committed.offset, behind))
            if behind and history is not None:
                lag.records += behind
                lag.seconds = max(lag.seconds, history.lag_seconds(committed.offset, now_s))
        for key in self._uncommitted(survey, topic):
            lag.records += partition_lag(None, self._starts.get(key), self.end_of(*key)) or 0
        return lag

    def _uncommitted(self, survey: GroupSurvey, topic: str) -> list[Key]:
        """The partitions of a topic in which a group has committed no offset."""
        known, offsets = self._sources.image.topics.get(topic), survey.offsets.get(topic, {})
        indexes = () if known is None else known.partitions
        return [(topic, index) for index in indexes if index not in offsets]

    async def _run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Without groups, until other work wakes the broker; with them, brokers of a machine take turns."""
        now_s = asyncio.get_running_loop().time()
        return INTERVAL_S if self._histories else until_tick(now_s, INTERVAL_S)

    async def sample(self) -> None:
        """One round: the high watermarks of the partitions of all topics that groups have committed in."""
        wanted: dict[Key, None] = {}
        uncommitted: dict[Key, None] = {}
        await in_slices(self._collect(wanted, uncommitted))
        self._histories = {key: self._histories.get(key) or OffsetHistory() for key in wanted}
        self._starts = {key: start for key, start in self._starts.items() if key in uncommitted}
        elsewhere: dict[int, dict[str, list[int]]] = {}
        await in_slices(self._read_own(wanted, uncommitted, elsewhere))
        await asyncio.gather(
            *(self._read_other(leader, topics, uncommitted) for leader, topics in elsewhere.items())
        )

    def _collect(self, wanted: dict[Key, None], uncommitted: dict[Key, None]) -> Iterator[None]:
        for survey in self.groups():
            for topic, partitions in list(survey.offsets.items()):
                wanted.update(dict.fromkeys((topic, index) for index in partitions))
                missing = dict.fromkeys(self._uncommitted(survey, topic))
                wanted.update(missing)
                uncommitted.update(missing)
            yield
        for _, topic, index, _, _ in self.share_partitions():
            wanted[topic, index] = None
            yield

    def _read_own(
        self,
        wanted: dict[Key, None],
        uncommitted: dict[Key, None],
        elsewhere: dict[int, dict[str, list[int]]],
    ) -> Iterator[None]:
        sources = self._sources
        now_s = sources.clock.monotonic()
        for topic, index in wanted:
            slot = sources.partitions.find(topic, index)
            if isinstance(slot, Partition) and slot.leading:
                self._histories[topic, index].add(now_s, slot.log.high_watermark)
                if (topic, index) in uncommitted:
                    self._starts[topic, index] = slot.log.log_start_offset
            else:
                known = sources.image.topics.get(topic)
                image = None if known is None else known.partitions.get(index)
                if image is not None and image.leader >= 0 and image.leader != sources.node_id:
                    elsewhere.setdefault(image.leader, {}).setdefault(topic, []).append(index)
            yield

    async def _read_other(
        self, leader: int, topics: dict[str, list[int]], uncommitted: dict[Key, None]
    ) -> None:
        starting: dict[str, list[int]] = {}
        for topic, indexes in topics.items():
            missing = [index for index in indexes if (topic, index) in uncommitted]
            if missing:
                starting[topic] = missing
        # The next round sends a request to a leader that does not respond again.
        with suppress(PenstockError):
            ends = await self._listed(leader, topics, _LATEST)
            now_s = self._sources.clock.monotonic()
            for key, offset in ends.items():
                history = self._histories.get(key)
                if history is not None:
                    history.add(now_s, offset)
            if starting:
                self._starts |= await self._listed(leader, starting, _EARLIEST)

    async def _listed(self, leader: int, topics: dict[str, list[int]], when: int) -> dict[Key, int]:
        """Offsets of partitions, from the broker that leads them; partitions that it does not know are left
        out."""
        wanted = [
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=when) for index in indexes],
            )
            for topic, indexes in topics.items()
        ]
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=wanted)
        response = await self._list_offsets(leader, request)
        return {
            (topic.name, partition.partition_index): partition.offset
            for topic in response.topics
            for partition in topic.partitions
            if not partition.error_code
        }
