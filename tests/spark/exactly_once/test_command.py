"""`python -m penstock.spark.exactly_once`: decisions are shown, and finished."""

from __future__ import annotations

import pytest

from penstock.spark.exactly_once.__main__ import main
from penstock.spark.exactly_once.decisions import Decision
from tests.spark.exactly_once.sinks import Sink, committed_values


def test_decided_transactions_are_shown_and_committed(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver of a batch write has died after its decision."""
    decisions = f"{topic}-decisions"
    sink = Sink(bootstrap, topic, decisionsTopic=decisions)
    prepared = sink.prepared(0, "one", "two")
    me = sink.coordinators.begin(sink.settings.names.driver(sink.query), two_phase=False)
    sink.journal.write(sink.coordinators, me, Decision(sink.query, 0, (prepared,)))
    assert main([bootstrap, "--topic", decisions]) == 0
    assert f"{sink.query} batch 0: 1 transactions, 2 rows" in capsys.readouterr().out
    assert committed_values(bootstrap, topic) == []
    for _ in range(2):
        assert main([bootstrap, "--topic", decisions, "--finish"]) == 0
        assert f"1 decisions in {decisions}, all committed" in capsys.readouterr().out
        assert committed_values(bootstrap, topic) == ["one", "two"]


def test_a_wrong_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["localhost:many"]) == 1
    said = capsys.readouterr().err
    assert said == "penstock.spark.exactly_once: kafka.bootstrap.servers: 'localhost:many' is not host:port\n"
