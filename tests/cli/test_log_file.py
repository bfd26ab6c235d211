"""The log file of a broker: it is replaced when it is large, and stays the descriptor of the process."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.log_file import RotatingFile, open_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.log"


@pytest.fixture
def errors(path: Path) -> Iterator[int]:
    """A descriptor that stands for the standard error of a process."""
    descriptor = open_log(path)
    yield descriptor
    os.close(descriptor)


def written(log: RotatingFile, *lines: str) -> None:
    for line in lines:
        log.write(f"{line}\n".encode())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_large_file_is_renamed_and_the_log_goes_on_in_a_new_one(path: Path, errors: int) -> None:
    log = RotatingFile(path, errors, limit_bytes=100)
    written(log, "a" * 60, "b" * 60, "c")
    older = path.with_name("broker.log.1")
    assert (older.read_text(), path.read_text()) == ("a" * 60 + "\n" + "b" * 60 + "\n", "c\n")
    # Output that does not go through the log has the same descriptor.
    os.write(errors, b"a traceback\n")
    assert path.read_text() == "c\na traceback\n"
    written(log, *(str(nth) * 60 for nth in range(4)))
    assert sorted(each.name for each in path.parent.iterdir()) == ["broker.log", "broker.log.1"]
    assert older.read_text() == "2" * 60 + "\n" + "3" * 60 + "\n"


def test_a_file_that_was_large_before_is_renamed_at_the_first_line(path: Path) -> None:
    path.write_text("x" * 200)
    with path.open("a", encoding="utf-8") as errors:
        written(RotatingFile(path, errors.fileno(), limit_bytes=100), "first", "second")
    assert path.read_text() == "second\n"


def test_a_file_that_the_user_has_moved_is_left_alone(path: Path, errors: int) -> None:
    log = RotatingFile(path, errors, limit_bytes=100)
    moved, another = path.with_name("moved"), path
    path.rename(moved)
    another.write_text("another\n")
    written(log, "a" * 100, "b")
    assert (moved.read_text(), another.read_text()) == ("a" * 100 + "\n", "another\nb\n")
    assert not path.with_name("broker.log.1").exists()


def test_a_folder_that_cannot_be_written_keeps_the_log_going(path: Path, errors: int) -> None:
    path.with_name("broker.log.1").mkdir()
    log = RotatingFile(path, errors, limit_bytes=100)
    written(log, "a" * 100, "b")
    assert path.read_text() == "a" * 100 + "\nb\n"


def test_only_the_owner_can_read_the_log_and_the_older_one(path: Path, errors: int) -> None:
    """Both were 0644: every user of the machine saw names of users, topics and addresses."""
    log = RotatingFile(path, errors, limit_bytes=100)
    written(log, "a" * 100, "b")
    assert (mode(path), mode(path.with_name("broker.log.1"))) == (0o600, 0o600)


def test_logs_of_an_earlier_version_are_closed_to_others(path: Path) -> None:
    older = path.with_name("broker.log.1")
    for each in (path, older):
        each.write_text("old\n")
        each.chmod(0o644)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    RotatingFile(path, descriptor)
    os.close(descriptor)
    assert (mode(path), mode(older)) == (0o600, 0o600)
    path.chmod(0o644)
    os.close(open_log(path))
    assert mode(path) == 0o600
