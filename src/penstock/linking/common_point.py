"""Finds the last point that a log has in common with the source to which its topic returns.

The log and the source were the same up to some batch. Behind it each has records of its own: of the old
source before it failed, and of the promoted mirror since. Batches are compared by base offset, last offset,
producer and checksum. A batch that is the same on both sides proves the batches before it as well, under two
conditions: the source mirrored that part from this log, and no leader epoch of this log begins in between.
So the first and the last batch of each leader epoch are compared up to the end of the mirrored part. Behind
that, every batch is compared.

Invariants:
- The common point is behind a batch that both have. If there is none, it is at the start of both.
- What cannot be compared is not in common. A point that is too low costs a transfer, one that is too high
  would leave records that the source does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.linking.mirror import LastBatch

__all__ = ["CommonPoint", "Probe", "Range"]


class Range(NamedTuple):
    """The records of a log: from `start` to before `end`."""

    start: int
    end: int


class Probe(NamedTuple):
    """Compare batches from the one that has `offset` on: all of a response, or the first one only."""

    offset: int
    first_only: bool


class CommonPoint:
    """The comparison of one log with its source. `offset` is the common point once `next` returns None."""

    __slots__ = ("_anchors", "_first", "_is_over", "_log", "_source", "offset")

    def __init__(
        self, log: Range, source: Range, epoch_starts: Iterable[int], mirrored_end: int | None
    ) -> None:
        """`epoch_starts` are those of the log, as the first offsets of its leader epochs.

        `mirrored_end` is the end of what the source has mirrored from this log; None if that is not known.
        Then all of it is compared, and logs that do not begin at offset 0 have nothing in common.
        """
        self._log = log
        self._source = source
        first, last = max(log.start, source.start), min(log.end, source.end)
        known = min(mirrored_end or 0, last)
        starts = {each for each in epoch_starts if first < each < known}
        ends = {each - 1 for each in (*starts, known) if first < each <= known}
        #: offsets of the batches that prove those before them, the next one last
        self._anchors = sorted(starts | ends, reverse=True)
        # Behind the mirrored part, equal batches prove nothing about others that cannot be compared.
        self._is_over = first >= last or known < first
        self._first = first
        # A log that begins later is mirrored from the start of the source.
        self.offset = min(log.start, source.start)

    @property
    def next(self) -> Probe | None:
        """What to compare next; None at the end."""
        if self._is_over:
            return None
        if self._anchors:
            return Probe(self._anchors[-1], first_only=True)
        return Probe(max(self.offset, self._first), first_only=False)

    def compared(self, own: Sequence[LastBatch], source: Sequence[LastBatch]) -> None:
        """Take the batches of the log and of the source, each from the one that has the probed offset on."""
        probe = self.next
        assert probe is not None, "there is something to compare"
        before = self.offset
        for mine, other in zip(own, source, strict=False):
            if mine != other:
                # Behind an anchor, the batches of its part are compared one by one.
                self._is_over = not probe.first_only
                self._anchors.clear()
                return
            self.offset = max(self.offset, mine.last_offset + 1)
            if probe.first_only:
                break
        if probe.first_only:
            self._anchors.pop()
            if self.offset == before:
                self._anchors.clear()
        elif self.offset == before:
            # One of them has nothing more.
            self._is_over = True
        if self.offset >= min(self._log.end, self._source.end):
            self._is_over = True
