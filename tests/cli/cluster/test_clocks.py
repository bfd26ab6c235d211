"""`penstock cluster clock`: shows the brokers' clocks, and confirms that this machine's time is right."""

from __future__ import annotations

import json

import pytest

from penstock.broker.node.clock_watch import ClockWatch
from penstock.cli.cluster import clocks
from penstock.testing import Cluster, cluster
from tests.cli.running import run_here

DAY_MS = 86_400_000


def step(running: Cluster, broker: int) -> None:
    """Make a broker believe that its clock was set ahead by two days."""
    node = running._nodes[broker]

    def do() -> None:
        watch = node.broker.stages.cluster.node.clock_watch
        assert watch._trust._expected is not None
        watch._trust._expected -= 2 * DAY_MS
        watch.check()

    node.call(do).result()


def test_an_operator_confirms_the_time_of_a_cluster(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(brokers=3) as running:
        # No broker vouches for another one meanwhile.
        monkeypatch.setattr(ClockWatch, "compared", lambda *_: None)
        for broker in (1, 2, 3):
            step(running, broker)
        where = ("--bootstrap", running.bootstrap)

        assert run_here("cluster", "clock", "--json", *where) == 0
        rows = json.loads(capfd.readouterr().out)
        assert [row["broker"] for row in rows] == [1, 2, 3]
        assert all("was set ahead by 17" in row["deletion_suspended"] for row in rows)
        assert all(abs(row["ahead_s"]) < 60 and row["clock"].endswith("+00:00") for row in rows)

        # The administrator's machine is the one whose clock is wrong.
        with monkeypatch.context() as patched:
            right = clocks._now_ms
            patched.setattr(clocks, "_now_ms", lambda: right() + 2 * DAY_MS)
            assert run_here("cluster", "clock", "--confirm", "--yes", *where) == 1
        assert "no broker has this machine's time" in capfd.readouterr().err

        assert run_here("cluster", "clock", "--confirm", "--yes", "--json", *where) == 0
        rows = json.loads(capfd.readouterr().out)
        assert [row["deletion_suspended"] for row in rows] == ["", "", ""]
