"""Brokers for programs of Kafka's ecosystem. `make ecosystem` runs these tests; others skip them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.links import Links

PATIENCE_S = 150.0


@pytest.fixture(scope="session", autouse=True)
def wanted() -> None:
    if not os.environ.get("ECOSYSTEM"):
        pytest.skip("runs with `make ecosystem`")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Cluster]:
    configs = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    with Cluster(tmp_path / "brokers", 3, Links(), configs) as cluster:
        yield cluster


class Program:
    """A Java program, its log, and its end."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process is not None and self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str, list[str]], Program]]:
    """Makes programs; all of them are ended after the test."""
    made: list[Program] = []

    def make(name: str, command: list[str]) -> Program:
        made.append(Program(command, tmp_path / f"{name}.log"))
        return made[-1]

    yield make
    for each in made:
        if each._process is not None:
            each.kill()
