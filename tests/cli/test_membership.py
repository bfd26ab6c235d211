"""Who joins a cluster, and who is taken out of it that is gone, on whichever machine it was."""

from __future__ import annotations

import pytest

from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.cli.membership import _way_in, forget_broker
from penstock.cli.overview import cluster_overview, quorum_overview
from penstock.testing import cluster
from tests.testing.test_clusters import create, produce, read


def test_five_voters_are_enough() -> None:
    with cluster(brokers=5) as running, DirectLine(running.bootstrap, 10) as line:
        with pytest.raises(Failure, match="the quorum has 5 voters"):
            _way_in(line, votes=True)
        voters = _way_in(line, votes=False)["controller.quorum.voters"]
        assert sorted(voter.partition("@")[0] for voter in voters.split(",")) == ["1", "2", "3", "4", "5"]


def test_a_broker_that_is_gone_is_forgotten_with_its_vote() -> None:
    with cluster(brokers=4) as running:
        create(running, "t")
        produce(running, "t", b"kept")
        gone = running.isr("t")[0]
        with pytest.raises(Failure, match=f"broker {gone} is up, and would come back: stop it first"):
            forget_broker(running.bootstrap, gone, 10)
        running.kill(gone)
        running.wait_for_isr("t", size=2)
        assert forget_broker(running.bootstrap, gone, 10) == 1
        left = [broker for broker in running.ids if broker != gone]
        assert running.wait_for_isr("t") == left
        with DirectLine(running.bootstrap, 10) as line:
            assert [broker["broker"] for broker in cluster_overview(line)["brokers"]] == left
            assert sorted(voter["node"] for voter in quorum_overview(line)["voters"]) == left
        assert read(running, "t", 1) == [b"kept"]
        with pytest.raises(Failure, match=f"there is no broker {gone}"):
            forget_broker(running.bootstrap, gone, 10)
