"""Makes the environment in which all targets of the Makefile run, and shows how far it is.

python3 -m tools.environment FOLDER

pip names each package that it collects, and `constraints.txt` has about as many lines as there are packages.
The rest of pip's output is shown only if it fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

__all__ = ["make", "steps"]

_OLDEST: Final = (3, 11)
_BAR: Final = 30
_LINES_KEPT: Final = 30
_CLEAR: Final = "\r\x1b[K"
_CONSTRAINTS: Final = "constraints.txt"


def steps(lines: Iterable[str], expected: int) -> Iterator[tuple[str, str]]:
    """The phase and its progress, for each line of pip that has any."""
    collected = 0
    for line in lines:
        if line.startswith("Collecting "):
            collected += 1
            done = min(collected, expected)
            bar = ("#" * (done * _BAR // expected)).ljust(_BAR)
            yield "collecting packages", f"[{bar}] {collected}/{max(expected, collected)} {line.split()[1]}"
        elif line.startswith("Installing collected packages: "):
            yield "installing packages", f"{line.count(',') + 1} of them"


def make(folder: Path, screen: TextIO) -> int:
    """Returns an exit code; of a failure everything has been said."""
    python = folder / "bin" / "python"
    if not python.exists() and (code := subprocess.run([sys.executable, "-m", "venv", folder]).returncode):
        return code
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar=off", "--constraint", _CONSTRAINTS, "--editable", ".[dev]"]
    expected = len(Path(_CONSTRAINTS).read_text().splitlines())
    said: deque[str] = deque(maxlen=_LINES_KEPT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        _show(steps(_kept(pip.stdout, said), expected), screen)
    if pip.returncode:
        screen.writelines(said)
    return pip.returncode


def _kept(lines: Iterable[str], said: deque[str]) -> Iterator[str]:
    for line in lines:
        said.append(line)
        yield line


def _show(steps: Iterable[tuple[str, str]], screen: TextIO) -> None:
    """On a terminal one line that changes; elsewhere a line for each phase."""
    shown = ""
    for phase, progress in steps:
        if screen.isatty():
            screen.write(f"{_CLEAR}{phase}: {progress}")
        elif phase != shown:
            screen.write(f"{phase}\n")
        shown = phase
        screen.flush()
    if screen.isatty():
        screen.write(_CLEAR)


if __name__ == "__main__":
    if sys.version_info < _OLDEST:
        sys.exit("penstock needs Python 3.11 or newer: make PYTHON=python3.11")
    sys.exit(make(Path(sys.argv[1]), sys.stderr))
