"""Holes: ranges of offsets that no segment of a log has, though they were written.

Opening a log finds them (`continuity`, `recovery`), and so does the scrubber when a segment file vanishes
while the broker runs. A hole is an entry of the log's `RecoveryReport`, as all damage is, and reads of it are
answered with CORRUPT_MESSAGE. Unlike other damage it cannot be written over in place.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.ports import Files
from penstock.storage.log import Log
from penstock.storage.recovery_report import Corruption
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG

__all__ = [
    "begin_earlier",
    "blocking_damage",
    "describe_holes",
    "find_lost_files",
    "held_end",
    "holes",
    "is_hole",
    "lose_segment",
    "sound_behind",
    "uncommitted_damage",
]


def is_hole(log: Log, damage: Corruption) -> bool:
    """Returns true if bytes are missing, so that a damaged range cannot be written over in place."""
    segment = log.segments.holding(damage.first_offset)
    return (
        not damage.size
        or damage.position + damage.size > segment.size
        or damage.path != segment.path(LOG)
        or damage.first_offset < segment.base_offset
    )


def holes(log: Log) -> list[Corruption]:
    """The ranges of offsets that no segment has."""
    return [damage for damage in log.recovery.corruption if is_hole(log, damage)]


def describe_holes(log: Log) -> str:
    """The missing ranges of offsets, as text."""
    ranges = [f"{hole.first_offset} to {hole.next_offset - 1}" for hole in holes(log)]
    return f"the log lacks the offsets {', '.join(ranges)}"


def uncommitted_damage(log: Log) -> int | None:
    """The first offset of damage above the high watermark; None if there is none.

    A follower that truncates its log there loses no record below its high watermark.
    """
    found = (damage.first_offset for damage in log.recovery.corruption)
    return next((offset for offset in found if offset >= log.high_watermark), None)


def sound_behind(log: Log, offset: int) -> bool:
    """Returns true if the log has offsets from `offset` on that are not known to be damaged."""
    for damage in log.recovery.corruption:
        if damage.first_offset > offset:
            break
        offset = max(offset, damage.next_offset)
    return offset < log.end_offset


def blocking_damage(log: Log) -> list[Corruption]:
    """The damage that a replica outside of the ISR has to have repaired before it fetches.

    Other damage can be repaired in place once it is known to be committed, which fetching makes known.
    """
    committed = log.high_watermark
    return [
        damage
        for damage in log.recovery.corruption
        if damage.next_offset <= committed or is_hole(log, damage)
    ]


def held_end(log: Log) -> int:
    """The end of a log's records: the start of a hole at its end, else its end offset.

    Why: offsets below the recovery point are not given again, so a log that lost its last segment ends with a
    hole. It must not report missing records as committed.
    """
    corruption = log.recovery.corruption
    if corruption and not log.segments.active.size and is_hole(log, corruption[-1]):
        last = corruption[-1]
        if last.next_offset >= log.end_offset:
            return last.first_offset
    return log.end_offset


def find_lost_files(files: Files, segments: Iterable[tuple[str, int]]) -> list[str]:
    """Of segment files, given as (path, size), those that are gone or too short; touches the disk."""
    found = []
    for path, size in segments:
        try:
            if files.size(path) < size:
                found.append(path)
        except FileNotFoundError:
            found.append(path)
    return found


def begin_earlier(log: Log, offset: int) -> Corruption:
    """Another replica has the records from `offset` on, which is before the unexplained log start.

    The log starts at `offset` from now on, and lacks the records before its first segment. The log start of
    the other replica may be unexplained, too.
    """
    assert log.explained_start <= offset < log.log_start_offset
    hole = Corruption(log.segments.first.path(LOG), 0, 0, offset, log.log_start_offset)
    log.log_start_offset = log.local_log_start_offset = offset
    log.recovery.found(hole)
    return hole


def lose_segment(log: Log, segment: Segment) -> Corruption | None:
    """The file of a segment is gone: leave it out of the log, and report its offsets, if any, as missing."""
    if segment is log.segments.active and segment.size:
        log.roll()
    following = log.segments.after(segment)
    log.lose_segment(segment)
    if following is None:
        return None
    before = log.segments.holding(segment.base_offset)
    first_offset = max(segment.base_offset, log.local_log_start_offset)
    position = before.size if before.base_offset < segment.base_offset else 0
    hole = Corruption(before.path(LOG), position, 0, first_offset, following.base_offset)
    for known in log.recovery.corruption:
        if first_offset <= known.first_offset and known.next_offset <= following.base_offset:
            log.recovery.replaced(known)
    if first_offset >= following.base_offset:
        return None
    log.recovery.found(hole)
    return hole
