"""A minute of chaos on three real brokers; `make chaos` runs as much as wanted."""

from __future__ import annotations

import pytest

from chaos.nemesis import KINDS
from chaos.run import run

# A full disk still yields duplicates: see what is known in docs/internals/chaos.md.
FAULTS = [kind for kind in KINDS if kind != "disk-full"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_acknowledged_is_lost_and_everything_works_again() -> None:
    said: list[str] = []
    verdict = run(40, 2, 3, said.append, FAULTS)
    report = "\n".join([*said, *verdict.lines()])
    assert verdict.is_good, report
    assert verdict.faults >= 4, report
    assert verdict.outcomes["acknowledged"] > 1000, report
    assert verdict.outcomes["pending"] == 0, report
