"""A minute of chaos on three real brokers; `make chaos` runs as much as wanted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chaos.nemesis import KINDS
from chaos.run import Verdict, run
from chaos.watching import Late


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_everything_works_again() -> None:
    said: list[str] = []
    verdict = run(60, 1, 3, said.append, list(KINDS))
    report = "\n".join([*said, *verdict.lines()])
    assert verdict.is_good or verdict.is_late, report
    assert verdict.faults >= 8, report
    assert verdict.outcomes["acknowledged"] > 1000, report
    assert verdict.outcomes["pending"] == 0, report
    assert verdict.transactions["committed by ledger-1"] > 20, report
    if verdict.is_late:
        # No record is wrong: `tools.unstable` has the test run again, alone, three times.
        raise TimeoutError(report)


@pytest.mark.parametrize(
    ("anomalies", "complaints", "is_good", "is_late"),
    [
        ({}, [], True, False),
        ({}, [Late("not in sync")], False, True),
        ({}, [Late("not in sync"), "a counter fell"], False, False),
        ({}, ["the log was not read to its end"], False, False),
        ({"lost": [1]}, [Late("not in sync")], False, False),
    ],
)
def test_a_run_is_late_if_nothing_but_the_cluster_was(
    anomalies: dict[str, Sequence[object]], complaints: list[str], is_good: bool, is_late: bool
) -> None:
    verdict = Verdict(1, {}, 0, anomalies, complaints, {})
    assert (verdict.is_good, verdict.is_late) == (is_good, is_late)
