"""`penstock up --cores` as a process."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from tests.cli.running import PENSTOCK, WAIT_S


class RunningMachine(NamedTuple):
    process: subprocess.Popen[str]
    bootstrap: str
    folder: Path
    log: list[str]

    def pid(self, broker: int) -> int:
        return int(json.loads((self.folder / f"broker-{broker}" / "broker.pid").read_text())["pid"])

    def http(self, path: str) -> str:
        address = next(line for line in self.log if "component=supervisor event=monitoring_started" in line)
        with urlopen(f"{address.partition('address=')[2].strip()}{path}", timeout=WAIT_S) as answer:
            return str(answer.read().decode())

    def has_logged(self, *parts: str) -> bool:
        return any(all(part in line for part in parts) for line in list(self.log))


@contextmanager
def running_machine(folder: Path, *options: str) -> Iterator[RunningMachine]:
    """A machine with two cores, once it is ready."""
    with starting_machine(folder, "up", "--cores", "2", "--data", str(folder), *options) as ready:
        yield ready()


@contextmanager
def starting_machine(folder: Path, *arguments: str) -> Iterator[Callable[[], RunningMachine]]:
    """A machine that a command starts; the function waits until it is ready."""
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    output = process.stdout
    log: list[str] = []
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    reader.start()

    def ready() -> RunningMachine:
        line = output.readline()
        assert line.startswith("ready "), log
        return RunningMachine(process, line.split()[1], folder, log)

    try:
        yield ready
    finally:
        process.kill()
        process.wait()
        reader.join(WAIT_S)
        process.stdout.close()
        process.stderr.close()
