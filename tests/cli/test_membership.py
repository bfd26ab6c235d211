"""What is asked of a cluster before a broker joins it."""

from __future__ import annotations

import pytest

from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.cli.membership import _way_in
from penstock.testing import cluster


def test_five_voters_are_enough() -> None:
    with cluster(brokers=5) as running, DirectLine(running.bootstrap, 10) as line:
        with pytest.raises(Failure, match="the quorum has 5 voters"):
            _way_in(line, votes=True)
        voters = _way_in(line, votes=False)["controller.quorum.voters"]
        assert sorted(voter.partition("@")[0] for voter in voters.split(",")) == ["1", "2", "3", "4", "5"]
