"""Makes the environment in which all targets of the Makefile run, and shows how far it is.

python3 -m tools.environment FOLDER [HASHES]

With HASHES, such as `hashes-docs.txt`, the environment has the packages of that file and nothing else.
Without, it is the one of the project: pip installs only files whose hashes are in `hashes-build.txt` and
`hashes.txt` (`tools.hashes` writes them).
An editable install has no hash, so this project comes last, without an index: all that it needs is there by
then, or pip fails. Nothing is built with packages that have no hash.

pip names each package that it collects. The rest of pip's output is shown only if it fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

__all__ = ["make", "steps"]

_OLDEST: Final = (3, 11)
_BAR: Final = 30
_LINES_KEPT: Final = 30
_CLEAR: Final = "\r\x1b[K"
_HASHES: Final = "hashes.txt"
_PACKAGE: Final = re.compile(r"^\S+==", re.MULTILINE)
_CHECKED: Final = ("--require-hashes", "--no-deps")
_BUILD: Final = (*_CHECKED, "--requirement", "hashes-build.txt")
_PACKAGES: Final = (*_CHECKED, "--no-build-isolation", "--requirement")
_PROJECT: Final = ("--no-index", "--no-build-isolation", "--editable", ".[dev]")
#: Bytecode is compiled on first use: most modules of the packages are never imported.
_QUICKLY: Final = ("--disable-pip-version-check", "--no-compile")
#: settings of pip that would bring in files beside the index
_UNCHECKED: Final = ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_REQUIREMENT")


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


def make(folder: Path, screen: TextIO, other: str | None = None) -> int:
    """Returns an exit code; of a failure everything has been said."""
    hashes = _HASHES if other is None else other
    installs = [(*_PACKAGES, hashes)] if other else [_BUILD, (*_PACKAGES, hashes), _PROJECT]
    python = folder / "bin" / "python"
    if not python.exists() and (code := subprocess.run([sys.executable, "-m", "venv", folder]).returncode):
        return code
    expected = len(_PACKAGE.findall(Path(hashes).read_text()))
    for arguments in installs:
        code = _install(python, arguments, expected, screen)
        if code:
            return code
    return 0


def _install(python: Path, arguments: Sequence[str], expected: int, screen: TextIO) -> int:
    command = [str(python), "-m", "pip", "install", *_QUICKLY, "--progress-bar=off"]
    said: deque[str] = deque(maxlen=_LINES_KEPT)
    environment = {name: value for name, value in os.environ.items() if name not in _UNCHECKED}
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as pip:
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
    sys.exit(make(Path(sys.argv[1]), sys.stderr, *sys.argv[2:]))
