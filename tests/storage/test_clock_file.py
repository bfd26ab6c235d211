"""The file with the time of a broker: whatever happens to it, it says what was saved, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.checkpoint import format_checked
from penstock.storage.clock_file import ClockFile, ClockFileRefused
from penstock.storage.memory import MemoryFiles
from penstock.timekeeping.trust import SavedClock

SAVED = SavedClock(1_700_000_000_000, 1_700_000_000_001, 3, 4, 5)


def new_file(files: MemoryFiles, node_id: int = 1, directory_id: str = "abc") -> ClockFile:
    files.makedirs("/data")
    return ClockFile(files, "/data", node_id, directory_id)


def test_the_saved_time_is_read_again() -> None:
    file = new_file(MemoryFiles())
    assert file.read() is None
    file.write(SAVED)
    assert file.read() == SAVED


@given(st.data())
def test_a_damaged_file_is_refused(data: st.DataObject) -> None:
    files = MemoryFiles()
    file = new_file(files)
    file.write(SAVED)
    content = bytearray(files.read(file.path))
    cut = data.draw(st.integers(0, len(content)))
    if cut < len(content) and data.draw(st.booleans()):
        content[cut] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[cut - 1 :]
    files.write_atomic(file.path, bytes(content))
    with pytest.raises(ClockFileRefused):
        file.read()


@pytest.mark.parametrize(("node_id", "directory_id"), [(2, "abc"), (1, "def")])
def test_a_file_of_another_broker_is_refused(node_id: int, directory_id: str) -> None:
    files = MemoryFiles()
    new_file(files, node_id, directory_id).write(SAVED)
    with pytest.raises(ClockFileRefused, match="it is the file of"):
        new_file(files).read()


@pytest.mark.parametrize("content", [b"", b"0\n1\n1 abc 1 2 3 4 5\n", format_checked(["1 abc 1"]), b"\xff"])
def test_other_content_is_refused(content: bytes) -> None:
    files = MemoryFiles()
    file = new_file(files)
    files.write_atomic(file.path, content)
    with pytest.raises(ClockFileRefused):
        file.read()
