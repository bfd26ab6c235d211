"""Environments with earlier versions of Penstock, for tests of upgrades.

An environment has the source of a commit and the packages of the present environment. It is made once, below
`build/versions`, from the history of this clone.
"""

from __future__ import annotations

import io
import subprocess
import sysconfig
import tarfile
import venv
from pathlib import Path
from typing import Final

from penstock.version import VERSION

__all__ = ["BEFORE_0_2", "FIRST", "RELEASE_0_1", "NoSuchVersion", "environment"]

ROOT: Final = Path(__file__).parent.parent
HOME: Final = ROOT / "build" / "versions"
#: release 0.1.0
RELEASE_0_1: Final = "8a74dbf5"
#: the last commit before the work on 0.2: share groups, transactions, ACLs and quotas, at the level of 0.1
BEFORE_0_2: Final = "6a30359f"
#: the first commit whose data directories are kept in tests/golden
FIRST: Final = "ee305a92"


class NoSuchVersion(Exception):
    """This clone does not have the commit: it may be shallow, or no clone at all."""


def environment(commit: str) -> Path:
    """The virtual environment with the Penstock of a commit; NoSuchVersion if there is no such commit."""
    home = HOME / commit
    ready = home / "ready"
    if not ready.exists():
        source = _archived(commit)
        home.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            archive.extractall(home, filter="data")
        venv.create(home / "venv", symlinks=True, with_pip=False, clear=True)
        packages = next((home / "venv" / "lib").glob("python*/site-packages"))
        # The directory itself, not its .pth files: these would name the present source.
        paths = (home / "src", Path(sysconfig.get_path("purelib")))
        (packages / "penstock.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        ready.write_text(VERSION, encoding="utf-8")
    return home / "venv"


def _archived(commit: str) -> bytes:
    """The source of a commit as a tar archive."""
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoSuchVersion(f"this clone has no commit {commit}: {reason}")
    return done.stdout
