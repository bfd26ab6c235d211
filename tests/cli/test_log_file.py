"""The log file of a broker: it is replaced when it is large, and stays the descriptor of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from penstock.cli.log_file import rotating


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.log"


@pytest.fixture
def errors(path: Path) -> Iterator[TextIO]:
    """A stream that stands for the standard error of a process."""
    with path.open("a", encoding="utf-8") as stream:
        yield stream


def written(log: TextIO, *lines: str) -> None:
    for line in lines:
        log.write(line + "\n")
        log.flush()


def test_a_large_file_is_renamed_and_the_log_goes_on_in_a_new_one(path: Path, errors: TextIO) -> None:
    log = rotating(path, errors, limit_bytes=100)
    written(log, "a" * 60, "b" * 60, "c")
    older = path.with_name("broker.log.1")
    assert (older.read_text(), path.read_text()) == ("a" * 60 + "\n" + "b" * 60 + "\n", "c\n")
    # Output that does not go through the log has the same descriptor.
    os.write(errors.fileno(), b"a traceback\n")
    assert path.read_text() == "c\na traceback\n"
    written(log, *(str(nth) * 60 for nth in range(4)))
    assert sorted(each.name for each in path.parent.iterdir()) == ["broker.log", "broker.log.1"]
    assert older.read_text() == "2" * 60 + "\n" + "3" * 60 + "\n"


def test_a_file_that_was_large_before_is_renamed_at_the_first_line(path: Path) -> None:
    path.write_text("x" * 200)
    with path.open("a", encoding="utf-8") as errors:
        written(rotating(path, errors, limit_bytes=100), "first", "second")
    assert path.read_text() == "second\n"


def test_a_file_that_the_user_has_moved_is_left_alone(path: Path, errors: TextIO) -> None:
    log = rotating(path, errors, limit_bytes=100)
    moved, another = path.with_name("moved"), path
    path.rename(moved)
    another.write_text("another\n")
    written(log, "a" * 100, "b")
    assert (moved.read_text(), another.read_text()) == ("a" * 100 + "\n", "another\nb\n")
    assert not path.with_name("broker.log.1").exists()


def test_a_folder_that_cannot_be_written_keeps_the_log_going(path: Path, errors: TextIO) -> None:
    path.with_name("broker.log.1").mkdir()
    log = rotating(path, errors, limit_bytes=100)
    written(log, "a" * 100, "b")
    assert path.read_text() == "a" * 100 + "\nb\n"
