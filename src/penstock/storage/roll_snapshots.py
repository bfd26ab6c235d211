"""The producer snapshots of one log that are written while it is open: at rolls, and at a clean shutdown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.ports import File, Files
from penstock.storage.producers import ProducerStates
from penstock.storage.seals import LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SNAPSHOT, file_name
from penstock.storage.segments import NO_OFFSETS, Segments
from penstock.storage.snapshot import encode_snapshot

__all__ = ["ENCODED_AT_ONCE", "RollSnapshots"]

#: producers whose snapshot a roll encodes itself: 2 ms if each has written five batches
ENCODED_AT_ONCE: Final = 1_000


class RollSnapshots:
    """Owned by the `SegmentStore` of the log."""

    __slots__ = ("_files", "_owner", "_path", "beyond", "missing", "write_later")

    def __init__(self, files: Files, path: str, owner: LogOwner) -> None:
        self._files = files
        self._path = path
        self._owner = owner
        #: the base offsets of segments that have no snapshot, or not yet
        self.missing = NO_OFFSETS
        #: has the snapshot of more than `beyond` producers written after the roll; None to write all at rolls
        self.write_later: Callable[[int], None] | None = None
        self.beyond = ENCODED_AT_ONCE

    def exists(self, offset: int) -> bool:
        return self._files.exists(f"{self._path}/{file_name(offset)}{SNAPSHOT}")

    def is_deferred(self, producers: ProducerStates) -> bool:
        """Returns true if a roll leaves the snapshot of `producers` to `write_later`."""
        return self.write_later is not None and len(producers.states) > self.beyond

    def write(self, offset: int, producers: ProducerStates) -> tuple[bytes, File]:
        """Write the producers as of `offset`; returns the content and the file, which is not synced."""
        snapshot = encode_snapshot(producers.states, self._owner, offset)
        file = self._files.open(f"{self._path}/{file_name(offset)}{SNAPSHOT}", create=True)
        file.truncate(0)
        file.append(snapshot)
        self.missing -= {offset}
        return snapshot, file

    def defer(self, offset: int, producers: ProducerStates) -> None:
        """Have the snapshot of `producers`, which are those at `offset`, written later.

        While another one is being written, there is none at `offset`: one view of the producers is in use at
        a time.
        """
        assert self.write_later is not None, "snapshots are not deferred"
        self.missing |= {offset}
        with suppress(FileNotFoundError):
            self._files.remove(f"{self._path}/{file_name(offset)}{SNAPSHOT}")
        if producers.viewed_by is None:
            self.write_later(offset)

    def written(self, offset: int, active: Segment, producers: ProducerStates) -> None:
        """The snapshot at `offset` is in its place. A later one may be due, of a segment that is empty."""
        self.missing -= {offset}
        if active.base_offset in self.missing and producers.end_offset == active.base_offset:
            self.defer(active.base_offset, producers)

    def not_needed(self, removed: list[Segment], segments: Segments) -> list[Segment]:
        """Of `removed`, the oldest segments, those that a start does not need for the producers.

        It takes the producers from a snapshot, and without it from the batches before it.
        """
        first = segments.first.base_offset
        self.missing = frozenset(offset for offset in self.missing if offset >= first)
        kept = len(removed)
        while kept:
            following = segments.after(removed[kept - 1])
            if following is None or following.base_offset not in self.missing:
                break
            kept -= 1
        return removed[:kept]
