"""The first five minutes of a newcomer: a fresh environment, the wheel, the blocks of the README.

python3 -m tools.newcomer FOLDER

Installs the wheel of `make release` with its dependencies, from the index that pip is set up for, and runs
the blocks of the README in their order as a reader does, each as a process of its own. Then the last program
of the README runs in an environment with `penstock-mq-client` alone. What each took and printed goes into
`docs/newcomer.md`.
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

__all__ = ["PAGE", "Installed", "Step", "main", "recorded", "render", "steps"]

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
_ALONE: Final = """## The clients alone

The last program ran again in an environment with `penstock-mq-client` and what it requires:

| installed | packages | MB |
|---|--:|--:|
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


@dataclass(frozen=True)
class Installed:
    """What pip has put into an environment, beside pip itself."""

    name: str
    packages: tuple[str, ...]
    size: int


def render(done: Sequence[Step], machine: str, installed: Sequence[Installed] = ()) -> str:
    rows = [f"| {number}. {step.title} | {step.seconds:.1f} |" for number, step in enumerate(done, 1)]
    rows.append(f"| all | {sum(step.seconds for step in done):.1f} |")
    parts = [_HEAD.format(machine=machine, rows="\n".join(rows))]
    for number, step in enumerate(done, 1):
        parts.append(f"## Step {number}\n\n```{step.language}\n{step.code.rstrip()}\n```\n")
        parts.append(
            f"```text\n{step.output.rstrip()}\n```\n" if step.output.strip() else "It prints nothing.\n"
        )
    if installed:
        found = [f"| `{each.name}` | {len(each.packages)} | {each.size / 1e6:.0f} |" for each in installed]
        parts.append(_ALONE.format(rows="\n".join(found)))
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


class _Environment:
    """A fresh environment with one wheel and what it requires."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._folder = folder
        self.variables = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.variables["VIRTUAL_ENV"] = str(folder)
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
            self.variables.pop(name, None)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        command = ["pip", "install", *quiet, str(wheel)]
        subprocess.run(command, cwd=folder, env=self.variables, check=True)

    def installed(self, name: str) -> Installed:
        (site,) = self._folder.glob("lib/python*/site-packages")
        beside = {path.name for path in site.glob("*.dist-info")}
        packages = sorted(
            each.split("-")[0] for each in beside if not each.startswith(("pip-", "setuptools-"))
        )
        files = [
            path
            for path in site.rglob("*")
            if path.is_file()
            and path.suffix != ".pyc"
            and not path.relative_to(site).parts[0].startswith(("pip", "setuptools", "pkg_resources"))
        ]
        return Installed(name, tuple(packages), sum(path.stat().st_size for path in files))


def _follow(wheels: Path, folder: Path, installed: list[Installed]) -> Iterator[Step]:
    whole, clients = (_wheel(wheels, name) for name in ("penstock_mq", "penstock_mq_client"))
    began = time.monotonic()
    (_, install), (_, up), *rest = steps((ROOT / "README.md").read_text(encoding="utf-8"))
    assert install.startswith("pip install penstock-mq") and up.startswith("penstock up"), install
    whole_environment = _Environment(folder / "environment", whole)
    yield Step("sh", install, time.monotonic() - began, "")
    installed.append(whole_environment.installed("penstock-mq"))
    environment = whole_environment.variables
    port = _free_port()
    environment["PENSTOCK_BOOTSTRAP"] = f"127.0.0.1:{port}"
    began = time.monotonic()
    with _broker(up, port, environment, folder) as ready:
        yield Step("sh", up, time.monotonic() - began, ready.replace(f":{port}", ":9092"))
        for language, code in rest:
            began = time.monotonic()
            output = _run(language, code.replace(ADDRESS, f"127.0.0.1:{port}"), environment, folder)
            yield Step(language, code, time.monotonic() - began, output)
        alone = _Environment(folder / "clients", clients)
        again = _run(language, code.replace(ADDRESS, f"127.0.0.1:{port}"), alone.variables, folder)
        if again != output:
            sys.exit(f"with the clients alone, the last program printed {again!r}, not {output!r}")
        installed.append(alone.installed("penstock-mq-client"))


def _wheel(folder: Path, name: str) -> Path:
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel.resolve()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.newcomer FOLDER")
    with tempfile.TemporaryDirectory() as folder:
        done: list[Step] = []
        installed: list[Installed] = []
        for step in _follow(Path(sys.argv[1]), Path(folder), installed):
            print(f"{step.seconds:6.1f} s  {step.title}", flush=True)
            done.append(step)
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    PAGE.write_text(render(done, machine, installed), encoding="utf-8")


if __name__ == "__main__":
    main()
