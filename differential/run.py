"""Both brokers through the same operations, one by one, until they disagree."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from differential.allowed import is_allowed
from differential.compare import Difference, differences
from differential.connection import Connection
from differential.normalise import Plain, normalise
from differential.operations import Operation
from differential.settling import settle
from differential.translation import Translation
from penstock.wire.schema import Struct

__all__ = ["Disagreement", "Party", "Report", "run"]

#: how long reads that differ are repeated: Kafka applies metadata after it has answered
_PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.05
_runs = count()


class Party(Protocol):
    """A broker as the run sees it."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass
class Disagreement:
    """The operation at which the brokers disagree, and how."""

    index: int
    operation: Operation
    differences: list[Difference]

    @property
    def signature(self) -> tuple[str, str]:
        """The identity of a difference, which stays the same if other operations are left out."""
        return self.operation.api.name, self.differences[0].fields

    def lines(self) -> list[str]:
        return [
            f"operation {self.index}: {self.operation}",
            *(f"  {found}" for found in self.differences),
        ]


@dataclass
class Report:
    operations: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)


class _Side:
    """One broker during one run."""

    def __init__(self, party: Party, prefix: str) -> None:
        self.connection = Connection(party.host, party.port)
        self.translation = Translation(prefix, party.port)

    def send(self, operation: Operation) -> Plain:
        answer = self.connection.call(operation, self.translation.request(operation))
        if not isinstance(answer, Struct):
            return answer
        self.translation.learn(operation, answer)
        settle(self.connection, self.translation, operation, answer)
        return normalise(answer, self.translation)


def run(
    ours: Party,
    theirs: Party,
    operations: Sequence[Operation],
    *,
    keep_going: bool = False,
) -> Report:
    """Send the operations to both; ends with the first difference that is not allowed, or keeps going.

    A difference after another one may be its consequence.
    """
    prefix = f"r{next(_runs)}x{time.time_ns() % 1_000_000_007}-"
    sides = _Side(ours, prefix), _Side(theirs, prefix)
    report = Report()
    try:
        for index, operation in enumerate(operations):
            found = _compare(sides, operation)
            report.operations += 1
            left = []
            for difference in found:
                entry = is_allowed(operation, difference)
                if entry is None:
                    left.append(difference)
                else:
                    report.allowed[entry.id] += 1
            if left:
                report.disagreements.append(Disagreement(index, operation, left))
                if not keep_going:
                    break
    finally:
        for side in sides:
            side.connection.close()
    return report


def _compare(sides: tuple[_Side, _Side], operation: Operation) -> list[Difference]:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        ours, theirs = (side.send(operation) for side in sides)
        found = differences(ours, theirs)
        if not found or not operation.is_read or time.monotonic() > deadline:
            return found
        if all(is_allowed(operation, difference) for difference in found):
            return found
        time.sleep(_PAUSE_S)
