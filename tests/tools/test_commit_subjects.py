"""The check of commit subjects finds wrong ones, and passes where git does not know which commits are new."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.commit_subjects import new_subjects, wrong


@pytest.mark.parametrize(
    "subject",
    [
        "replication: reset ISR state on leader epoch change",
        "broker/replica, node: hand over what is used",
        "Merge branch 'x'",
        'Revert "cli: print versions"',
    ],
)
def test_right_subjects_pass(subject: str) -> None:
    assert wrong([subject]) == []


@pytest.mark.parametrize("subject", ["Tell leaders about it", "wip", "raft:", "raft: " + "x" * 70])
def test_wrong_subjects_are_named(subject: str) -> None:
    (found,) = wrong([subject])
    assert repr(subject) in found


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path, subject: str) -> None:
    git(root, "commit", "--allow-empty", "-m", subject)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "tools").mkdir(parents=True)
    git(root, "init", "-b", "main")
    commit(root, "An old subject")
    (root / "tools" / "commit_subjects.py").write_text("")
    git(root, "add", ".")
    commit(root, "The rule begins")
    return root


@pytest.mark.process
@needs_git
def test_only_commits_beyond_main_count(checkout: Path) -> None:
    commit(checkout, "On main")
    git(checkout, "checkout", "-b", "topic")
    commit(checkout, "raft: add pre-vote")
    assert new_subjects(checkout) == ["raft: add pre-vote"]
    git(checkout, "checkout", "--detach")
    assert new_subjects(checkout) == ["raft: add pre-vote"]
    git(checkout, "checkout", "main")
    assert new_subjects(checkout) == []


@pytest.mark.process
@needs_git
def test_without_knowledge_of_git_nothing_counts(checkout: Path, tmp_path: Path) -> None:
    assert new_subjects(tmp_path) == []
    git(checkout, "checkout", "-b", "topic")
    commit(checkout, "raft: add pre-vote")
    git(tmp_path, "clone", "--depth", "1", f"file://{checkout}", "shallow")
    assert new_subjects(tmp_path / "shallow") == []
    git(checkout, "branch", "-D", "main")
    assert new_subjects(checkout) == []
