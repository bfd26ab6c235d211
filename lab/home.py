"""The lab's folder, its stamps, and the commands that fill it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


class LabError(Exception):
    """A download or build failed; the message ends with the output of the tool."""


class MissingTool(LabError):
    """A program that only the lab needs is not on this machine."""


def lab_root() -> Path:
    root = Path(os.environ.get("PENSTOCK_LAB") or REPOSITORY / ".lab").resolve()
    root.mkdir(parents=True, exist_ok=True)
    return root


def require(*programs: str) -> None:
    """Raise `MissingTool` unless every program is on the path."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingTool(f"{' and '.join(missing)} not found on this machine")


def command(arguments: Sequence[str | Path], cwd: Path) -> str:
    """Run to the end and return its output; `LabError` with the last lines where it fails."""
    done = subprocess.run(
        arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise LabError(f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n{tail}")
    return done.stdout


def built(folder: Path, recipe: Sequence[str], build: Callable[[Path], None]) -> Path:
    """`folder`, built by `build(folder)` unless its stamp says that this very recipe already did.

    The stamp is written last: a build that was interrupted starts again from an empty folder. If another
    process builds the folder, the call waits for it.
    """
    stamp = folder.with_name(folder.name + ".stamp")
    wanted = hashlib.sha256("\n".join(recipe).encode()).hexdigest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir() and stamp.is_file() and stamp.read_text().strip() == wanted:
            return folder
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build(folder)
        stamp.write_text(wanted + "\n")
    return folder


def verify(archive: Path, algorithm: str, expected: str) -> None:
    """Refuse an archive that is not byte for byte the one the recipe names."""
    found = hashlib.new(algorithm, archive.read_bytes()).hexdigest()
    if found != expected:
        raise LabError(f"{archive.name} has {algorithm} {found}, the recipe says {expected}")
