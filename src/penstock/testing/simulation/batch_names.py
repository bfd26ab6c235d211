"""Names of batches: an offset and an epoch name the same batch for ever, on every node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.testing.simulation.checkers import Violation

__all__ = ["BatchNames", "BatchView"]


class BatchView(NamedTuple):
    """A batch in a log: offsets from `base` to before `end`."""

    base: int
    end: int
    epoch: int
    #: None where compaction has been: it leaves a batch its place, and takes records out of it
    crc: int | None
    #: when its youngest record was made
    timestamp_ms: int = -1


class BatchNames:
    """(offset, epoch) names one batch for ever, and so all that lies before it (Raft 5.3).

    Every batch has one predecessor: this is Raft's log matching property, checked batch by batch.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], BatchView] = {}
        self._before: dict[tuple[int, int], tuple[int, int]] = {}
        #: by checksum: offsets and epochs that such a batch was appended with
        self._places: dict[int, set[tuple[int, int]]] = {}
        #: batches whose epoch was changed on a disk: as they were found, and as they were appended
        self._raised: dict[BatchView, BatchView] = {}

    def as_appended(self, batch: BatchView) -> BatchView:
        """A batch of a disk that was tampered with, as it was appended.

        Checksums cover neither offset nor epoch: a bit that changes there leaves the batch intact. Where no
        replica contradicts another epoch, its log may lead, and is copied as it is: all logs are equal then,
        and no reader gets other records. So copies of a batch with another epoch count as the batch. A copy
        with another offset does not.
        """
        places = set() if batch.crc is None else self._places.get(batch.crc, set())
        if not places or (batch.base, batch.epoch) in places:
            return batch
        base, epoch = max(places, key=lambda place: (place[0] == batch.base, place[1] == batch.epoch, place))
        original = batch._replace(base=base, end=base + batch.end - batch.base, epoch=epoch)
        if base == batch.base:
            self._raised[batch] = original
        return original

    def forget(self, end: int) -> None:
        """Forget the batches from `end` on."""
        self._known = {name: batch for name, batch in self._known.items() if batch.end <= end}
        self._before = {name: before for name, before in self._before.items() if name in self._known}

    def check(self, where: str, before: BatchView | None, batches: Sequence[BatchView]) -> None:
        """`batches` are new in some log, behind `before`."""
        if before is not None:
            before = self._raised.get(before, before)
        for found in batches:
            batch = self._raised.get(found, found)
            name = batch.base, batch.epoch
            known = self._known.get(name)
            if known is None or known.crc is None:
                self._known[name] = batch
                if batch.crc is not None:
                    self._places.setdefault(batch.crc, set()).add(name)
            if known is not None and not _same(known, batch):
                raise Violation("offset and epoch name two records", f"{where} at {name}")
            if before is not None:
                first = self._before.setdefault(name, (before.base, before.epoch))
                if first != (before.base, before.epoch):
                    raise Violation("log matching", f"{where}: {first} and {before} both come before {name}")
            before = batch


def _same(one: BatchView, other: BatchView) -> bool:
    """Whether two batches of one name may be the same one."""
    return one.end == other.end and (one.crc == other.crc or one.crc is None or other.crc is None)
