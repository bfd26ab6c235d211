"""A copy of the batch headers of a log, which follows the log with little work.

Owned by: `Observation`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.record import iter_batches
from penstock.replication.digest import is_as_produced
from penstock.storage.log import Log
from penstock.testing.simulation.batch_names import BatchView

__all__ = ["Appended", "LogMirror"]

_READ_BYTES: Final = 1 << 20


class Appended(NamedTuple):
    """New batches without a gap between them, and the batch before them if it is known."""

    before: BatchView | None
    batches: list[BatchView]


class LogMirror:
    """The batches of a log when it was last looked at."""

    def __init__(self) -> None:
        self.batches: list[BatchView] = []

    def before(self, start: int) -> list[BatchView]:
        """The batches that end at `start` or before."""
        if not self.batches or self.batches[0].end > start:
            return []
        return [batch for batch in self.batches if batch.end <= start]

    def _is_current(self, log: Log) -> bool:
        """Returns true if the log has the same batches, by its end, its start and its last epoch."""
        if not self.batches or self.batches[0].end <= log.log_start_offset:
            return False
        last = self.batches[-1]
        return last.end == log.end_offset and log.leader_epochs.epoch_of(last.base) == last.epoch

    def _forget(self, log: Log) -> None:
        """Drop the batches that the log does not have any more, before its start and at its end."""
        batches, start = self.batches, log.log_start_offset
        while batches and (
            batches[-1].end > log.end_offset
            or log.leader_epochs.epoch_of(batches[-1].base) != batches[-1].epoch
        ):
            batches.pop()
        if batches and batches[0].end <= start:
            batches[:] = [batch for batch in batches if batch.end > start]

    def refresh(self, log: Log, *, tampered: bool = False) -> list[Appended]:
        """Follow the log: return the batches that were appended, perhaps after a truncation.

        There are several parts if batches between them are missing: damaged, removed by compaction, or
        removed from the disk by a disaster.
        """
        batches, end = self.batches, log.end_offset
        if self._is_current(log):
            return []
        self._forget(log)
        position = batches[-1].end if batches else log.log_start_offset
        appended = [Appended(batches[-1] if batches else None, [])]
        if position < log.local_log_start_offset:
            # Only the archive has them: `archive_invariants` compares it with the cluster.
            position = log.local_log_start_offset
            appended.append(Appended(None, []))
        if position >= end:
            return appended
        damaged = {damage.first_offset: damage.next_offset for damage in log.recovery.corruption}
        while position < end:
            if position in damaged:
                position = damaged[position]
                appended.append(Appended(None, []))
                continue
            found = log.read(position, _READ_BYTES, upper=end)
            if found is None:
                break
            data, before = found.read_unverified(), position
            for start, header in iter_batches(data):
                if tampered and not crc_matches(data[start : start + header.size], header):
                    return appended
                batch = _batch_view(header)
                if tampered and not position <= batch.base < batch.end <= end:
                    # A bit of its base offset has changed, or of the one before.
                    appended.append(Appended(None, []))
                    position += batch.end - batch.base
                    continue
                if (log.config.compact or tampered) and batch.base > position:
                    appended.append(Appended(None, []))
                batches.append(batch)
                appended[-1].batches.append(batch)
                position = batch.end
            if position == before:
                # A bit of the length has changed: the read ends within the batch.
                return appended
        return appended


def _batch_view(header: BatchHeader) -> BatchView:
    crc = header.crc if is_as_produced(header) else None
    return BatchView(header.base_offset, header.next_offset, header.leader_epoch, crc, header.max_timestamp)
