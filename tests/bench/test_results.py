"""Which commit a run says that it measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import results

pytestmark = pytest.mark.process


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()


def test_what_a_run_writes_itself_does_not_make_the_commit_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, written = tmp_path / "broker.py", tmp_path / "bench" / "results" / "latest.json"
    written.parent.mkdir(parents=True)
    measured.write_text("1")
    written.write_text("1")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    written.write_text("2")
    assert results.commit() == head
    measured.write_text("2")
    assert results.commit() == f"{head}-dirty"


def test_outside_of_a_repository_the_commit_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.commit() == "unknown"
