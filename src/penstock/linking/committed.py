"""Which committed offsets of a group at the source are committed here.

Invariants:
- No offset is committed beyond what has been mirrored: a reader would skip records.
- An offset that a reader of this cluster has committed is left as it is, and so is the group from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.ids import TopicPartition

__all__ = ["Committed", "GroupMirror"]


class Committed(NamedTuple):
    """A committed offset of a group, with its metadata."""

    offset: int
    metadata: str = ""


class GroupMirror:
    """The committed offsets of one group, as this broker has taken them over from the source."""

    __slots__ = ("_written",)

    def __init__(self) -> None:
        #: the offsets that this mirror has committed
        self._written: dict[TopicPartition, int] = {}

    def due(
        self,
        source: Mapping[TopicPartition, Committed],
        here: Mapping[TopicPartition, int],
        mirrored: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Committed]:
        """The offsets to commit, of partitions that are in `mirrored`, which has their high watermarks.

        `here` are the offsets that the group has in this cluster.
        """
        due = {}
        for key, committed in source.items():
            end = mirrored.get(key)
            if end is None:
                continue
            wanted = min(committed.offset, end)
            own, written = here.get(key), self._written.get(key)
            if own == wanted:
                self._written[key] = wanted
            elif own is None or own == written or (written is None and own < wanted):
                due[key] = committed._replace(offset=wanted)
        return due

    def committed(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """The offsets were committed."""
        self._written.update((key, each.offset) for key, each in offsets.items())

    def foreign(self, here: Mapping[TopicPartition, int]) -> int:
        """The number of partitions whose offset another client has committed here since."""
        return sum(1 for key, offset in here.items() if self._written.get(key, offset) != offset)
