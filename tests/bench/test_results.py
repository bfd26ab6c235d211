"""Which commit a run says that it measured, and how it notes failures."""

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


def test_files_that_a_run_writes_do_not_change_its_commit(
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


def failure(error: Exception) -> str:
    run = results.Run("a machine", {}, "abc1234", 1, 1.0, [])
    run.fail("synced/kill", "nats", error)
    return run.failures[0]


def test_a_failure_has_its_reason_in_one_line() -> None:
    text = failure(RuntimeError("load_nats gave no answer in 180 s:\nmore"))
    assert text == "synced/kill on nats: RuntimeError: load_nats gave no answer in 180 s"
    assert failure(TimeoutError()) == "synced/kill on nats: TimeoutError"


def test_a_failure_has_no_folders_of_this_machine() -> None:
    found = failure(
        OSError("cannot open '/home/ada/lab/nats.log', out=/tmp/x-1/a b at http://127.0.0.1:1/a/b")
    )
    assert found.endswith("cannot open 'nats.log', out=a b at http://127.0.0.1:1/a/b")


def test_a_long_reason_is_cut() -> None:
    found = failure(RuntimeError("x" * 500)).removeprefix("synced/kill on nats: RuntimeError: ")
    assert found == "x" * results.REASON_CHARACTERS + "…"
