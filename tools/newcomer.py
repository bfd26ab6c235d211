"""The first five minutes of a newcomer: a fresh environment, the wheel, the blocks of the README.

python3 -m tools.newcomer WHEEL

Installs the wheel of `make release` with its dependencies, from the index that pip is set up for, and runs
the blocks of the README in their order as a reader does, each as a process of its own. What each took and
printed goes into `docs/newcomer.md`.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "Step", "main", "recorded", "render", "steps"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "newcomer.md"
ADDRESS: Final = "127.0.0.1:9092"
_BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LIMIT_S: Final = 300
_HEAD: Final = """\
<!-- Written by `make newcomer`; run it again after a change of the README's blocks. -->
# The first five minutes

`make newcomer` makes a fresh environment, installs the wheel of `make release` into it, and runs the blocks
of the README in their order. This is its last record, on {machine}.

| step | seconds |
|---|--:|
{rows}
"""


@dataclass(frozen=True)
class Step:
    """What the reader typed, how long it took, and what it printed."""

    language: str
    code: str
    seconds: float
    output: str

    @property
    def title(self) -> str:
        first = next(line for line in self.code.splitlines() if line.strip())
        shown = first.split("#")[0].strip().replace("|", "\\|")
        return f"`{shown}`" if self.language == "sh" else f"the program that begins with `{shown}`"


def steps(readme: str) -> list[tuple[str, str]]:
    """The commands and programs of the README, in order. Each line of a shell is a step."""
    found: list[tuple[str, str]] = []
    for language, code in _BLOCK.findall(readme):
        parts = code.splitlines() if language == "sh" else [code]
        found += [(language, part) for part in parts if part.strip()]
    return found


def recorded(page: str) -> list[tuple[str, str]]:
    """The steps on the page of the last record."""
    return steps("\n".join(f"```{kind}\n{code}```" for kind, code in _BLOCK.findall(page)))


def render(done: Sequence[Step], machine: str) -> str:
    rows = [f"| {number}. {step.title} | {step.seconds:.1f} |" for number, step in enumerate(done, 1)]
    rows.append(f"| all | {sum(step.seconds for step in done):.1f} |")
    parts = [_HEAD.format(machine=machine, rows="\n".join(rows))]
    for number, step in enumerate(done, 1):
        parts.append(f"## Step {number}\n\n```{step.language}\n{step.code.rstrip()}\n```\n")
        parts.append(
            f"```text\n{step.output.rstrip()}\n```\n" if step.output.strip() else "It prints nothing.\n"
        )
    return "\n".join(parts)


def _free_port() -> int:
    """The README's port, or another one if it is in use here."""
    for port in (int(ADDRESS.rpartition(":")[2]), 0):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise OSError("no port is free")


@contextmanager
def _broker(command: str, port: int, environment: dict[str, str], folder: Path) -> Iterator[str]:
    words = [*command.split("#")[0].split(), "--port", str(port)]
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_LIMIT_S)


def _until_ctrl_c(code: str, lines: int, environment: dict[str, str], folder: Path) -> str:
    """The output of a command that runs until Ctrl-C, which comes after some lines."""
    with subprocess.Popen(
        code.split(),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = "".join(process.stdout.readline() for _ in range(lines))
        process.send_signal(signal.SIGINT)
        if process.wait(_LIMIT_S):
            sys.exit(f"{code}: exit code {process.returncode}")
    return output


def _run(language: str, code: str, environment: dict[str, str], folder: Path) -> str:
    if code.startswith("penstock consume"):
        return _until_ctrl_c(code, 2, environment, folder)
    command = ["python", "-c", code] if language == "python" else ["sh", "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S
    )
    if done.returncode:
        sys.exit(f"{code}\n{done.stdout}{done.stderr}")
    return done.stdout


def _follow(wheel: Path, folder: Path) -> Iterator[Step]:
    venv = folder / "environment"
    environment = {**os.environ, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    (_, install), (_, up), *rest = steps((ROOT / "README.md").read_text(encoding="utf-8"))
    assert install.startswith("pip install penstock-mq") and up.startswith("penstock up"), install
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run(["pip", "install", *quiet, str(wheel)], cwd=folder, env=environment, check=True)
    yield Step("sh", install, time.monotonic() - began, "")
    port = _free_port()
    environment["PENSTOCK_BOOTSTRAP"] = f"127.0.0.1:{port}"
    began = time.monotonic()
    with _broker(up, port, environment, folder) as ready:
        yield Step("sh", up, time.monotonic() - began, ready.replace(f":{port}", ":9092"))
        for language, code in rest:
            began = time.monotonic()
            output = _run(language, code.replace(ADDRESS, f"127.0.0.1:{port}"), environment, folder)
            yield Step(language, code, time.monotonic() - began, output)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.newcomer WHEEL")
    with tempfile.TemporaryDirectory() as folder:
        done = []
        for step in _follow(Path(sys.argv[1]).resolve(), Path(folder)):
            print(f"{step.seconds:6.1f} s  {step.title}", flush=True)
            done.append(step)
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    PAGE.write_text(render(done, machine), encoding="utf-8")


if __name__ == "__main__":
    main()
