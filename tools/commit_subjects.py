"""Checks the subjects of commits that are not on the main branch yet.

python3 -m tools.commit_subjects

A subject is `area: imperative`, at most 72 characters. Without git, in a shallow clone, or without a main
branch the check cannot know which commits are new, and passes. Commits before the one that added this file
are exempt.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["new_subjects", "wrong"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_MAIN_BRANCHES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_SUBJECT: Final = re.compile(r"[a-z0-9_./-]+(, [a-z0-9_./-]+)*: \S.*")
_LONGEST: Final = 72
_EXEMPT: Final = ("Merge ", "Revert ", "fixup! ", "squash! ")


def wrong(subjects: Iterable[str]) -> list[str]:
    """The subjects that break the rule, each with the reason."""
    found = []
    for subject in subjects:
        if subject.startswith(_EXEMPT):
            continue
        if not _SUBJECT.fullmatch(subject):
            found.append(f"{subject!r}: write `area: imperative`, for example `raft: reject stale votes`")
        elif len(subject) > _LONGEST:
            found.append(f"{subject!r}: {len(subject)} characters, at most {_LONGEST}")
    return found


def new_subjects(root: Path) -> list[str]:
    """Subjects of the commits that are on no main branch; empty if that cannot be known."""
    if _git(root, "rev-parse", "--is-shallow-repository") != "false":
        return []
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "-1", "--", "tools/commit_subjects.py")
    base = next((name for name in _MAIN_BRANCHES if _git(root, "merge-base", name, "HEAD")), None)
    if not added or base is None:
        return []
    subjects = _git(root, "log", "--no-merges", "--format=%s", f"^{base}", f"^{added}", "HEAD")
    return subjects.splitlines() if subjects else []


def _git(root: Path, *arguments: str) -> str | None:
    """The output of git; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> int:
    found = wrong(new_subjects(_ROOT))
    for each in found:
        print(f"commit subject {each}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
