"""The observation of simulated brokers: which batches of a log it sees, damaged ones included."""

from __future__ import annotations

from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.observation import _LogMirror
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

    (appended,) = _LogMirror().refresh(log, tampered=True)

    assert [(seen.base, seen.end) for seen in appended.batches] == [(0, 1)]
