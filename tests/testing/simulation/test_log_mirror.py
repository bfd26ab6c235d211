"""The mirror of a log: which batches it finds, damaged ones included."""

from __future__ import annotations

from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.log_mirror import LogMirror
from tests.storage.logs import CLOCK, batch, open_log

#: of a batch's length field
_LENGTH_POSITION = 8


def test_a_damaged_batch_length_ends_the_observation_of_a_tampered_log() -> None:
    """The read ended within the batch whose length had grown, and was repeated for ever."""
    files = MemoryFiles(CLOCK)
    log = open_log(files)
    size = len(batch())
    for _ in range(3):
        log.append(batch(), 0)
    files.open(log.segments.active.path(LOG)).pwrite(b"\x40", size + _LENGTH_POSITION)

    (appended,) = LogMirror().refresh(log, tampered=True)

    assert [(seen.base, seen.end) for seen in appended.batches] == [(0, 1)]


def test_only_changes_of_a_log_are_read() -> None:
    log = open_log(MemoryFiles(CLOCK))
    mirror = LogMirror()
    log.append(batch(), 0)
    (first,) = mirror.refresh(log)
    assert first.before is None
    assert mirror.refresh(log) == []
    log.append(batch(), 0)
    (second,) = mirror.refresh(log)
    assert second.before == first.batches[-1]


def test_a_log_of_the_same_length_in_another_epoch_is_another_one() -> None:
    log = open_log(MemoryFiles(CLOCK))
    mirror = LogMirror()
    for _ in range(2):
        log.append(batch(), 0)
    mirror.refresh(log)
    log.truncate_to(1)
    log.append(batch(), 3)
    (appended,) = mirror.refresh(log)
    assert [(seen.base, seen.epoch) for seen in appended.batches] == [(1, 3)]


def test_batches_before_a_new_log_start_are_forgotten() -> None:
    log = open_log(MemoryFiles(CLOCK))
    mirror = LogMirror()
    for _ in range(3):
        log.append(batch(), 0)
    mirror.refresh(log)
    log.advance_high_watermark(3)
    log.delete_records(2)
    mirror.refresh(log)
    assert [seen.base for seen in mirror.batches] == [2]
