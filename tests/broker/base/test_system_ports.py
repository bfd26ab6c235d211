"""Files and directories of a broker are for its user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.base.system_ports import OsFiles


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_directories_are_private_under_any_umask(tmp_path: Path) -> None:
    files = OsFiles()
    files.makedirs(f"{tmp_path}/a/b/c")
    files.makedirs(f"{tmp_path}/a/b/c")
    assert modes(tmp_path) == {0o700}


def test_files_are_private_under_any_umask(tmp_path: Path) -> None:
    files = OsFiles()
    files.open(f"{tmp_path}/segment", create=True).close()
    files.write_atomic(f"{tmp_path}/checkpoint", b"x")
    files.lock(f"{tmp_path}/lock").close()
    assert modes(tmp_path) == {0o600}


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        OsFiles().makedirs(f"{tmp_path}/file")
    with pytest.raises(OSError):
        OsFiles().makedirs(f"{tmp_path}/file/below")


def test_a_file_system_without_new_directories_is_an_error() -> None:
    """A missing parent and such a file system have the same error number."""
    with pytest.raises(FileNotFoundError):
        OsFiles().makedirs("/proc/penstock/data")
