"""Measures the start of a broker on the root file system of the image. Only root may change the root."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tools.image.entries import Entry
from tools.image.interpreter import PYTHON, USER

__all__ = ["start_seconds"]

_ROUNDS: Final = 5


def start_seconds(
    entries: Iterable[Entry], environment: Sequence[str], write: Callable[[Path, Iterable[Entry]], None]
) -> float | None:
    """The median time from the start of the process to `ready`; None if this user may not measure it."""
    chroot = shutil.which("chroot")
    if chroot is None or os.geteuid() != 0:
        return None
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir(mode=0o755)
        write(root, entries)
        words = [chroot, "--userspec", f"{USER}:{USER}", str(root), f"/{PYTHON}", "-m", "penstock"]
        variables = dict(each.split("=", 1) for each in environment)
        return statistics.median(_start(words, variables) for _ in range(_ROUNDS))


def _start(words: Sequence[str], variables: dict[str, str]) -> float:
    began = time.monotonic()
    with subprocess.Popen(
        [*words, "up", "--memory", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=variables,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.monotonic() - began
        process.terminate()
    if not line.startswith(b"ready"):
        raise SystemExit("the broker of the image does not start")
    return took
