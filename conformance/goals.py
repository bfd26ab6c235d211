"""The tests that count, from `goals.toml`: which milestone owes each, what it needs, how long it takes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GOALS = Path(__file__).resolve().parent / "goals.toml"
DEFAULT_SCENARIO = "default"


@dataclass(frozen=True, slots=True)
class Goal:
    suite: str
    test: str
    milestone: str
    seconds: float
    """How long the test takes on a broker that passes it; limits and the subset are planned with it."""
    needs: tuple[str, ...] = ()
    """What the test uses beyond topics, produce and fetch: `groups`, `transactions`, `acls`, `cluster`."""
    scenario: str = DEFAULT_SCENARIO
    """The settings that its brokers need, a key of `SCENARIOS`."""
    zstd: bool = False
    """Whether the test compresses with zstd, which a librdkafka that was built without its headers cannot."""
    http: bool = False
    """Whether the test gets tokens over HTTP, which a librdkafka that was built without curl cannot."""
    timed: bool = False
    """Whether the test fails on a busy machine. `make test` runs other tests beside it, so it is left out."""
    note: str = ""
    """Why no broker that keeps to the protocol passes it here, where that is so."""


@dataclass(frozen=True, slots=True)
class Goals:
    milestones: tuple[str, ...]
    """Those that a plain run covers."""
    missing: frozenset[str]
    """Needs that Penstock does not meet yet: a run against it leaves such tests out."""
    tests: tuple[Goal, ...]

    def waits_for(self, goal: Goal) -> list[str]:
        return [need for need in goal.needs if need in self.missing]

    def select(
        self, suites: Iterable[str] = (), milestones: Iterable[str] = (), only: Iterable[str] = ()
    ) -> list[Goal]:
        """Tests of the named suites and milestones whose name contains one of `only`; empty means any."""
        wanted_suites, wanted, parts = set(suites), set(milestones), tuple(only)
        return [
            goal
            for goal in self.tests
            if (not wanted_suites or goal.suite in wanted_suites)
            and (not wanted or goal.milestone in wanted)
            and (not parts or any(part in goal.test for part in parts))
        ]


@cache
def load_goals(path: Path = GOALS) -> Goals:
    document = tomllib.loads(path.read_text())
    milestones, missing = tuple(document.pop("milestones")), frozenset(document.pop("missing"))
    tests = tuple(
        Goal(suite=suite, test=test, **{**fields, "needs": tuple(fields.get("needs", ()))})
        for suite, rows in document.items()
        for test, fields in rows.items()
    )
    return Goals(milestones, missing, tests)
