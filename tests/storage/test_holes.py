"""Ranges of offsets that a log lacks, and what is left around them."""

from __future__ import annotations

from penstock.storage.holes import sound_behind
from tests.storage.logs import batch, note_rot, open_log


def test_a_log_knows_whether_sound_records_lie_behind_damage() -> None:
    log = open_log()
    for _ in range(4):
        log.append(batch(), 0)
    note_rot(log, 1)
    assert sound_behind(log, 1)
    note_rot(log, 3)
    assert sound_behind(log, 1)
    assert not sound_behind(log, 3)
    note_rot(log, 2)
    assert not sound_behind(log, 1)
    assert sound_behind(log, 0)
