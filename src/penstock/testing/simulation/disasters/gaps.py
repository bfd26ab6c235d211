"""Offsets of partitions that no disk of a simulated cluster holds, though a disk holds later ones.

No broker can restore such offsets. The most complete replica leads, and its followers cannot fetch past them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from penstock.model.ids import TopicPartition
from penstock.storage.folders import PartitionFolders
from penstock.storage.quarantine import Quarantine
from penstock.storage.segment_files import COMPACTED, LOG
from penstock.testing.disk import FaultyDisk
from penstock.testing.simulation.disasters.copies import intact_batches
from penstock.testing.simulation.disasters.tampering import content, segments

__all__ = ["missing_offsets"]

#: the first offset of a range, and the first one behind it
Span: TypeAlias = tuple[int, int]


def missing_offsets(disks: Iterable[tuple[FaultyDisk, list[str]]]) -> dict[TopicPartition, Span]:
    """The first range of offsets of each partition that no disk holds, where a disk holds later ones.

    `disks` are the nodes' disks, each with the paths of its data directories.
    """
    spans: dict[TopicPartition, list[Span]] = {}
    for disk, path, partition in _folders(disks):
        spans.setdefault(partition, []).extend(_spans(disk, path))
    gaps = {partition: _first_gap(found) for partition, found in spans.items()}
    return {partition: gap for partition, gap in gaps.items() if gap is not None}


def _folders(
    disks: Iterable[tuple[FaultyDisk, list[str]]],
) -> Iterator[tuple[FaultyDisk, str, TopicPartition]]:
    """Each partition folder, and the partition of its identity, or of its path if it has none."""
    found = []
    for disk, directories in disks:
        for directory in filter(disk.is_dir, (f"{directory}/topics" for directory in directories)):
            top = directory.removesuffix("/topics")
            folders = PartitionFolders(disk, top, Quarantine(disk, top), None)
            found += [(disk, folders, folder) for folder in folders.identified()]
    names = {folder.topic_id: folder.topic for _, _, folder in found}
    for disk, folders, (topic, index, topic_id, identity) in found:
        own_id, own_index = identity or (topic_id, index)
        name = topic if own_id == topic_id else names.get(own_id, topic)
        path = folders.partition_path(topic, index)
        # A link that leads nowhere has a folder's name, too.
        if disk.is_dir(path):
            yield disk, path, TopicPartition(name, own_index)


def _spans(disk: FaultyDisk, folder: str) -> Iterator[Span]:
    """The offsets of the intact batches in a partition folder.

    A compacted segment holds, or rightly leaves out, everything up to its last batch.
    """
    paths = segments(disk, folder)
    bases = [int(path.rpartition("/")[2].removesuffix(LOG)) for path in paths]
    following = dict(pairwise(bases))
    for path, base in zip(paths, bases, strict=True):
        limit = following.get(base)
        found = [
            (header.base_offset, header.next_offset)
            for _, header in intact_batches(content(disk, path))
            # No checksum covers the base offset.
            if header.base_offset >= base and (limit is None or header.next_offset <= limit)
        ]
        if found and disk.exists(path.removesuffix(LOG) + COMPACTED):
            found = [(base, found[-1][1])]
        yield from found


def _first_gap(spans: Iterable[Span]) -> Span | None:
    end = 0
    for first, following in sorted(spans):
        if first > end:
            return end, first
        end = max(end, following)
    return None
