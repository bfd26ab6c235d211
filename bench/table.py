"""The parts of a table: rows that measure, metrics with targets, and contenders that are measured."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from lab.cluster import Cluster, Way
from lab.server import Server

Values: TypeAlias = dict[str, float]
Starter: TypeAlias = Callable[[Path, Mapping[str, str]], Server]


class ClusterMaker(Protocol):
    """How to make a cluster of one kind, as `lab.cluster` does."""

    def __call__(
        self, folder: Path, settings: Mapping[str, str], brokers: int = ..., way: Way = ...
    ) -> Cluster: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker that runs during all rounds but those of clusters, and functions to start more of its kind."""

    name: str
    server: Server
    starter: Starter
    cluster: ClusterMaker
    python: str = sys.executable
    """The interpreter that has the package to measure, for rows that run commands."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. The target is relative to Kafka's best (`times_kafka`) or absolute (`limit`)."""

    name: str
    unit: str
    higher_is_better: bool
    times_kafka: float | None = None
    limit: float | None = None

    @property
    def label(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def best(self, values: list[float]) -> float:
        return max(values) if self.higher_is_better else min(values)

    def goal(self, kafka_best: float | None) -> float | None:
        """The value to reach, as far as it is known."""
        if self.limit is not None:
            return self.limit
        if self.times_kafka is None or kafka_best is None:
            return None
        return self.times_kafka * kafka_best

    def met(self, value: float, goal: float) -> bool:
        return value >= goal if self.higher_is_better else value <= goal


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    what: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Contender, float], Values | list[Values]]
    """`measure(contender, scale)`: a scale of 1 is the full amount of work. Several where that needs brokers
    that are warm, and they are the row's own."""
    heavy: bool = False
    """Minutes of work on brokers of its own: measured once unless `rounds` says more, without a round to warm
    up, and quickly only where it is selected by name."""
    rounds: int | None = None
    """Fewer rounds than by default, for rows without a target and for rows that take long."""
    brokers: int = 1
    """Where there are more, they are a cluster of the row's own, and no other broker runs beside it."""
    alone: str = ""
    """Why the row is measured on Penstock only; empty if it is measured on all contenders."""
    runs_package: bool = False
    """It runs a command of the contender's interpreter, so other versions of Penstock can be measured."""
    where: str = ""
    """Where its time goes (`make profile`), shown when it misses a target."""


@contextmanager
def fresh(contender: Contender, settings: Mapping[str, str]) -> Iterator[Server]:
    """A second broker on an empty folder, for work that would disturb the broker that all rows share."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = contender.starter(Path(folder), settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
