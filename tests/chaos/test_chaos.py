"""A minute of chaos on three real brokers; `make chaos` runs as much as wanted."""

from __future__ import annotations

import pytest

from chaos.nemesis import KINDS
from chaos.run import run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_everything_works_again() -> None:
    said: list[str] = []
    verdict = run(60, 1, 3, said.append, list(KINDS))
    report = "\n".join([*said, *verdict.lines()])
    assert verdict.is_good, report
    assert verdict.faults >= 8, report
    assert verdict.outcomes["acknowledged"] > 1000, report
    assert verdict.outcomes["pending"] == 0, report
    assert verdict.transactions["committed by ledger-1"] > 20, report
