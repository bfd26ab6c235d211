"""A recipe is built once, again when it changes, and again after it was interrupted."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from lab.home import LabError, MissingTool, built, command, require, verify


class Builder:
    def __init__(self) -> None:
        self.builds = 0
        self.fails = False

    def __call__(self, folder: Path) -> None:
        assert not list(folder.iterdir()), "a build starts from an empty folder"
        (folder / "half").touch()
        if self.fails:
            raise LabError("interrupted")
        self.builds += 1


def test_a_recipe_is_built_once(tmp_path: Path) -> None:
    build = Builder()
    for _ in range(2):
        assert built(tmp_path / "x", ("v1",), build) == tmp_path / "x"
    assert build.builds == 1


def test_a_changed_recipe_is_built_again(tmp_path: Path) -> None:
    build = Builder()
    built(tmp_path / "x", ("v1",), build)
    built(tmp_path / "x", ("v2",), build)
    assert build.builds == 2


def test_an_interrupted_build_starts_over(tmp_path: Path) -> None:
    build = Builder()
    build.fails = True
    with pytest.raises(LabError):
        built(tmp_path / "x", ("v1",), build)
    build.fails = False
    built(tmp_path / "x", ("v1",), build)
    assert build.builds == 1


def test_an_archive_must_be_the_one_that_was_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    archive.write_bytes(b"content")
    verify(archive, "sha256", hashlib.sha256(b"content").hexdigest())
    with pytest.raises(LabError, match=r"a\.tgz has sha256"):
        verify(archive, "sha256", "00")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(MissingTool, match="no-such-compiler not found"):
        require("sh", "no-such-compiler")


@pytest.mark.process
def test_a_failing_command_is_reported_with_its_last_output(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="last words"):
        command([sys.executable, "-c", "import sys; print('last words'); sys.exit(3)"], tmp_path)
