"""What a suite is to the runner: units of tests that share a process, and a way to run one."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from conformance.goals import Goal
from conformance.outcome import Outcome

TIMEOUT_FLOOR_S = 300.0
TIMEOUT_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that one process runs, all in one scenario."""

    suite: str
    name: str
    scenario: str
    goals: tuple[Goal, ...]

    @property
    def tests(self) -> list[str]:
        return [goal.test for goal in self.goals]

    @property
    def seconds(self) -> float:
        return sum(goal.seconds for goal in self.goals)

    @property
    def timeout(self) -> float:
        """Generous: a slow machine is not a failure, a hang is."""
        return TIMEOUT_FLOOR_S + TIMEOUT_FACTOR * self.seconds


@dataclass(frozen=True, slots=True)
class Workbench:
    """Where a unit runs: the brokers' addresses, a folder to litter, and Kafka's command-line tools."""

    bootstrap: str
    folder: Path
    kafka_path: Path
    #: TLS and SASL of clients, by the names of librdkafka
    client: Mapping[str, str] = field(default_factory=dict)
    #: variables that the tests read: files with keys and certificates
    environment: Mapping[str, str] = field(default_factory=dict)


def run_logged(
    arguments: Sequence[str | Path], cwd: Path, environment: Mapping[str, str], log: Path, timeout: float
) -> int | None:
    """Run to the end with all output in `log`: its exit status, or None where it had to be killed."""
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                arguments,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return None
    return done.returncode


class Suite(Protocol):
    name: str

    def prepare(self) -> None:
        """Fetch and build; `lab.MissingTool` where this machine cannot."""
        ...

    def units(self, goals: Sequence[Goal]) -> list[Unit]: ...

    def run(self, unit: Unit, workbench: Workbench) -> dict[str, Outcome]:
        """A verdict for every test of the unit, whatever happens to its process."""
        ...
