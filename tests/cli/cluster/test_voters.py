"""What is said of a quorum that has lost its majority."""

from __future__ import annotations

import pytest

from penstock.cli.cluster.overview import quorum_overview
from penstock.cli.cluster.voters import configured_voters
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.testing import cluster

SHOWN_FOR_S = 1.0
"""A leader that has lost the others shows them as it knew them; it resigns after three seconds."""
GONE_S = 8.0
PATIENCE_S = 3.0
"""For an answer that does not come; for those that do it is enough on a machine that stands still."""
#: so that no election starts because the test machine stands still
PATIENT = {"controller.quorum.fetch.timeout.ms": 60_000}


@pytest.mark.parametrize("since_s", [SHOWN_FOR_S, GONE_S])
def test_without_a_majority_the_reachable_voters_are_named(since_s: float) -> None:
    with cluster(brokers=3) as running:
        controller = running.controller
        assert controller is not None
        for broker in running.ids:
            if broker != controller:
                running.kill(broker)
        running.advance(since_s)
        reported = f"no majority: of its voters 1, 2, 3 only {controller} can be reached; start voters"
        with DirectLine(running.bootstrap, PATIENCE_S) as line, pytest.raises(Failure, match=reported):
            quorum_overview(line)


def test_a_minority_that_is_gone_is_no_failure() -> None:
    with cluster(brokers=3, config=PATIENT) as running, DirectLine(running.bootstrap, 60) as line:
        controller = running.controller
        gone = next(broker for broker in running.ids if broker != controller)
        running.kill(gone)
        running.advance(SHOWN_FOR_S)

        def silent() -> list[int]:
            overview = quorum_overview(line)
            assert overview["leader"] == controller
            return [v["node"] for v in overview["voters"] if v["silent_ms"] >= SHOWN_FOR_S * 1000]

        assert gone in silent()
        running.wait_until(lambda: silent() == [gone])
        assert sorted(configured_voters(line)) == [1, 2, 3]
