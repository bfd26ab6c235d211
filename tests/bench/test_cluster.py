"""When brokers are warm."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from bench import cluster
from bench.cluster import PASSES, warm_passes
from bench.table import Values

PASS_S = 5.0


def counted(monkeypatch: pytest.MonkeyPatch, costs: Iterable[float], scale: float = 1.0) -> tuple[int, int]:
    """How many passes of five seconds went before those that count, and how many count."""
    each, now_s = chain(costs, repeat(1.0)), [0.0]
    ran: list[float] = []

    def once() -> Values:
        now_s[0] += PASS_S
        ran.append(next(each))
        return {"cost": ran[-1]}

    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    values = warm_passes(once, "cost", scale)
    assert [value["cost"] for value in values] == ran[-len(values) :]
    return len(ran) - len(values), len(values)


def test_a_minute_goes_by_even_where_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, []) == (12, PASSES)


def test_counting_takes_longer_while_passes_get_better(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = [2.0 * 0.8**number for number in range(14)]
    assert counted(monkeypatch, [*costs, costs[-1] * 1.05]) == (15, PASSES)


def test_counting_takes_at_most_ninety_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, (0.8**number for number in range(100))) == (18, PASSES)


def test_a_quick_run_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, [], scale=0.1) == (2, PASSES)
