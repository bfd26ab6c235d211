"""The cut of a backup as what a query reads: topics, partitions, offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from penstock.archive.cuts import Cut, CutPartition, CutTopic
from penstock.archive.errors import ArchiveRefused
from penstock.archive.names import BACKUP, ArchivedPartition
from penstock.archive.objects import read_root
from penstock.archive.reading import PartitionReader
from penstock.archive.sweeping import cut_manifest, find_cut
from penstock.model.ids import TopicPartition, parse_topic_id
from penstock.scan.parts import Part
from penstock.scan.place import ArchivePlace, open_place

__all__ = ["NEWEST", "Moment", "open_moment", "parse_moment"]

#: the text for the newest cut
NEWEST: Final = "latest"
#: partitions that are looked at together
_AT_ONCE: Final = 16


def parse_moment(text: str) -> int | None:
    """Milliseconds since 1970 of digits or an ISO 8601 time, local unless it says otherwise; None for newest.

    ValueError if it is none of these.
    """
    if text.lower() == NEWEST:
        return None
    return int(text) if text.isdecimal() else int(datetime.fromisoformat(text).timestamp() * 1000)


class _CutPlace(NamedTuple):
    topic: CutTopic
    partition: CutPartition

    @property
    def manifest(self) -> str:
        topic = self.topic
        owner = ArchivedPartition(topic.topic, parse_topic_id(topic.topic_id), self.partition.partition)
        return owner.manifest(BACKUP, self.partition.manifest)


class Moment:
    """A cut, and the archive that it is in."""

    def __init__(self, place: ArchivePlace, cut: Cut) -> None:
        self._place = place
        self.cut = cut
        self._partitions = {
            TopicPartition(topic.topic, partition.partition): _CutPlace(topic, partition)
            for topic in cut.topics
            for partition in topic.partitions
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._partitions)

    def log_start(self, partition: TopicPartition) -> int:
        return self._partitions[partition].partition.log_start_offset

    def log_end(self, partition: TopicPartition) -> int:
        return self._partitions[partition].partition.end_offset

    def part(self, partition: TopicPartition, first: int, stop: int) -> Part:
        found = self._partitions[partition]
        return Part(self._place, found.manifest, found.partition.sha256, first, stop, found.partition)

    async def offsets_of_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time in each partition; -1 if there is none."""
        found: dict[TopicPartition, int] = {}
        wanted = list(times_ms.items())
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            offsets = await asyncio.gather(*(self._offset_of_time(*each) for each in some))
            found |= dict(zip((partition for partition, _ in some), offsets, strict=True))
        return found

    async def _offset_of_time(self, partition: TopicPartition, time_ms: int) -> int:
        store, found = open_place(self._place), self._partitions[partition]
        manifest = await cut_manifest(store, found.topic, found.partition)
        dated = await PartitionReader(store, manifest).offset_of_time(time_ms)
        return -1 if dated is None else dated[1]


async def open_moment(place: ArchivePlace, moment_ms: int | None) -> Moment:
    """The newest cut at or before a moment; ArchiveRefused if there is none, or no archive."""
    store = open_place(place)
    await read_root(store)
    _, cut = await find_cut(store, moment_ms)
    if not cut.topics:
        raise ArchiveRefused("the cut has no topics")
    return Moment(place, cut)
