"""Rebuilding a segment's indexes in a worker thread: it takes a walk through the whole segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.storage.scan import ColdPages, CorruptLog

if TYPE_CHECKING:
    from penstock.storage.segment import Segment

__all__ = ["ColdIndexes"]


class ColdIndexes(ColdPages):
    """The index files are of no use. The indexes are built in a twin: the event loop owns the segment."""

    def __init__(self, segment: Segment, twin: Segment) -> None:
        super().__init__(twin.open_file(), 0, twin.size)
        self._segment = segment
        self._twin = twin

    def warm(self) -> None:
        try:
            self._twin.rebuild_indexes()
        except CorruptLog as e:
            self._segment.rebuilt = e
        else:
            self._segment.rebuilt = self._twin
