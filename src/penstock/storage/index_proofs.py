"""Checks the transaction indexes of a log that is opened, before a reader of committed records uses them.

A transaction index that lost entries shows records of aborted transactions. So every sealed segment that a
start does not read needs a proof: its seal has the checksum of the index, or says that there is none.

- If the recovery after a crash has read a segment, it has also built the index.
- A sealed segment has its seal.
- A segment without a seal is proved by the manifest of a clean shutdown, if the log matches it: the manifest
has the number of entries, and the log has a marker for each entry.
- A segment without a seal, after a crash, has no proof. That matters only if the log has transactions.

Without a proof, the log is replayed from the first such segment on, and the segments are sealed. Cost: after
a crash, one small file is read for each sealed segment. After a clean shutdown, only the indexes of segments
with aborted transactions are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.ports import Files
from penstock.records.batch import CONTROL_BIT
from penstock.records.header_fields import ATTRIBUTES, BASE_OFFSET, PRODUCER_ID
from penstock.storage.log import Log
from penstock.storage.scan import CorruptLog
from penstock.storage.sealing import EndedSegment, expect_seals, read_seal, seal_again
from penstock.storage.seals import file_checksum
from penstock.storage.segment import Segment
from penstock.storage.segment_files import TRANSACTION_INDEX
from penstock.storage.transaction_rebuild import TransactionRebuild
from penstock.storage.transactions import ABORTED_ENTRY

__all__ = ["ended_segments", "has_transactions", "prove_indexes"]


def prove_indexes(log: Log, files: Files, counts: Sequence[int] | None) -> None:
    """Rebuild the transaction indexes from the first one on that has no proof. Reads and writes files.

    `counts` has the base offset of each segment with aborted transactions, and their number, in turn, of a
    log that matches the manifest; None for any other log.
    """
    first = _first_unproven(log, files, counts)
    if first is None:
        return
    rebuild = TransactionRebuild(log, files, first.base_offset, None)
    rebuild.replay(rebuild.remaining(log), rebuild.before(log))
    for file in rebuild.install(log):
        file.sync()
    expect_seals(log.segments, seal_again(files, log.owner, ended_segments(log, first.base_offset)))
    files.sync_dir(log.path)
    log.recovery.transactions_rebuilt_from = first.base_offset


def ended_segments(log: Log, base_offset: int) -> list[EndedSegment]:
    """The sealed segments without damage from `base_offset` on, for `seal_again`."""
    ended = []
    for segment in log.segments.since(base_offset):
        following = log.segments.after(segment)
        if following is not None and not segment.damage:
            ended.append(EndedSegment(log.path, segment.base_offset, following.base_offset, segment.size))
    return ended


def _first_unproven(log: Log, files: Files, counts: Sequence[int] | None) -> Segment | None:
    if log.recovery.clean and counts is not None:
        known = dict(zip(counts[::2], counts[1::2], strict=True))
        return next((each for each in log.segments if not _is_proven(log, files, each, known)), None)
    walked_from = log.recovery.walked_from
    unread = [each for each in log.segments if walked_from is None or each.base_offset < walked_from]
    if log.recovery.clean:
        # The manifest is of a release that did not count, or the log was not in it.
        unread = [each for each in unread if each is not log.segments.active]
    unsealed = None
    for segment in unread:
        if not segment.size:
            continue
        fits = _fits_seal(log, files, segment)
        if fits is False:
            return segment
        if fits is None and unsealed is None:
            unsealed = segment
    return unsealed if unsealed is not None and has_transactions(log) else None


def _is_proven(log: Log, files: Files, segment: Segment, known: dict[int, int]) -> bool:
    """Whether the index of a segment of a log that was closed cleanly is the one of the shutdown."""
    if segment.base_offset not in known and not segment.transactions.entries():
        return True
    fits = _fits_seal(log, files, segment)
    return _is_plausible(segment, files, known.get(segment.base_offset, 0)) if fits is None else fits


def _fits_seal(log: Log, files: Files, segment: Segment) -> bool | None:
    """Whether the transaction index is the one that the segment was sealed with; None without a seal.

    False if the segment had a seal at the last clean shutdown, and now has none or another one.
    """
    seal = read_seal(files, segment, log.owner)
    if seal is None:
        return False if segment.expected_seal.is_known(segment.size) else None
    return seal.transactions == file_checksum(files, segment.path(TRANSACTION_INDEX))


def _is_plausible(segment: Segment, files: Files, count: int) -> bool:
    """Whether an index has as many entries as it should, and each names a marker in the segment."""
    path = segment.path(TRANSACTION_INDEX)
    if not files.exists(path) or files.size(path) != count * ABORTED_ENTRY.size:
        return False
    try:
        for entry in segment.transactions.entries():
            _, header = next(segment.scan(segment.find(entry.last_offset)))
            if (
                header[BASE_OFFSET] != entry.last_offset
                or header[PRODUCER_ID] != entry.producer_id
                or not header[ATTRIBUTES] & CONTROL_BIT
                or not 0 <= entry.first_offset < entry.last_offset
            ):
                return False
    except (CorruptLog, StopIteration):
        return False
    finally:
        segment.release()
    return True


def has_transactions(log: Log) -> bool:
    """Whether anything in the log says that it has transactions."""
    producers = log.producers
    return (
        producers.had_transactions
        or producers.has_markers
        or any(segment.transactions.entries() for segment in log.segments)
    )
