"""The brokers under test, one per scenario, started when first needed and started again when one dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from conformance.goals import DEFAULT_SCENARIO
from lab.server import Server

Starter: TypeAlias = Callable[[Path, Mapping[str, str]], Server]

# What the suites' own test clusters set: several partitions, and groups that settle fast.
COMMON = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
SCENARIOS = {DEFAULT_SCENARIO: COMMON, "noautocreate": {**COMMON, "auto.create.topics.enable": "false"}}


class Brokers:
    """Hands out the address of a healthy broker; owns the processes and their folders."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        self._starter = starter
        self._folder = folder
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.stop()

    def bootstrap(self, scenario: str) -> str:
        if scenario not in self._servers:
            self._servers[scenario] = self._start(scenario)
        return self._servers[scenario].bootstrap

    def obituary(self, scenario: str) -> str:
        """Empty for a healthy broker; else how its log ends, and a fresh broker takes its place."""
        server = self._servers[scenario]
        if server.healthy():
            return ""
        state = "died" if server.process is None or server.process.poll() is not None else "stopped answering"
        words = f"the broker {state}: {server.log_tail(8)}"
        server.stop()
        self._servers[scenario] = self._start(scenario)
        return words

    def _start(self, scenario: str) -> Server:
        folder = self._folder / f"broker-{scenario}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        server = self._starter(folder, SCENARIOS[scenario])
        server.start()
        return server


class ExternalBroker(Brokers):
    """A broker that somebody else runs: never started, never stopped, whatever its settings."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It goes on without us."""

    def bootstrap(self, scenario: str) -> str:
        return self._bootstrap

    def obituary(self, scenario: str) -> str:
        return ""
