"""The first timestamp of a segment is used only if its batch is sound."""

from __future__ import annotations

import pytest

from penstock.storage.first_timestamp import checked_first_timestamp
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from tests.storage.logs import NOW_MS, batch, open_log


def test_the_first_timestamp_is_the_largest_of_the_first_batch() -> None:
    log = open_log()
    log.append(batch(3), 0)
    log.append(batch(1, timestamp=NOW_MS + 100), 0)
    assert checked_first_timestamp(log.segments.active) == NOW_MS + 2


@pytest.mark.parametrize(("size", "is_checked"), [(10, True), ((1 << 20) + 1, False)])
def test_a_damaged_batch_has_none_unless_it_is_too_large_to_check(size: int, is_checked: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, max_message_bytes=1 << 22)
    log.append(batch(1, value=bytes(size)), 0)
    segment = log.segments.active
    files.open(segment.path(LOG)).pwrite(b"\x7f", 35)  # the first byte of the largest timestamp
    found = checked_first_timestamp(segment)
    assert (found is None) if is_checked else (found is not None and found > NOW_MS)
