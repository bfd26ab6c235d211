"""The first page: health has reasons, rates come from two samples, missing parts are not zeros."""

from __future__ import annotations

from penstock.console.views.events import Event
from penstock.console.views.overview import broker_rows, health_of, overview, quorum_view
from penstock.console.views.samples import GroupSample, History
from penstock.observability.health import Level
from tests.console.samples import a_sample, log_dirs


def test_a_healthy_cluster_has_no_reasons() -> None:
    assert health_of(a_sample()) == (Level.HEALTHY, ())


def test_reasons_name_the_cause() -> None:
    sick = a_sample(
        brokers=(1,), fenced=(2,), leader=-1, isr=(1,), controller=-1, log_dirs={1: log_dirs({}, free=5)}
    )
    level, reasons = health_of(sick)
    assert level == Level.UNHEALTHY
    assert reasons == (
        "1 partitions have no leader",
        "there is no active controller",
        "broker 2 is fenced",
        "1 partitions lack in-sync replicas",
        "broker 1: the volume of /data has 5% free",
    )


def test_a_broker_that_is_gone_or_silent_counts() -> None:
    assert "broker 2 is not in the cluster" in str(health_of(a_sample(brokers=(1,))).reasons)
    silent = a_sample(log_dirs={1: log_dirs({}), 2: None})
    assert health_of(silent) == (Level.DEGRADED, ("broker 2 has not responded",))
    assert [row["state"] for row in broker_rows(silent)] == ["running", "silent"]
    offline = a_sample(log_dirs={1: log_dirs({}, error=56), 2: log_dirs({})})
    assert "is offline" in health_of(offline).reasons[0]


def test_brokers_and_quorum() -> None:
    first, second = broker_rows(a_sample(isr=(1,)))
    assert (first["leads"], first["controller"], first["behind"], first["size"]) == (1, True, 0, 10)
    assert (second["leads"], second["replicas"], second["behind"]) == (0, 1, 1)
    quorum = quorum_view(a_sample())
    assert quorum is not None
    assert [voter["lag"] for voter in quorum["voters"]] == [0, 2]
    assert quorum_view(a_sample(quorum=None)) is None


def test_rates_lag_and_the_latest_changes() -> None:
    history = History()
    commits = {("t", 0): 4}
    for n in range(3):
        group = GroupSample("g", "Stable", "classic", "consumer", 1, commits)
        history.add(a_sample(1.0 + 2 * n, ends={("t", 0): 10 * n}, groups=[group]))
    shown = overview(history, [Event(1.0, "info", "old", "x"), Event(2.0, "info", "new", "x")], None)
    assert shown["totals"]["records_per_s"] == 5.0
    assert shown["totals"]["lag"] == 16
    assert [point[1] for point in shown["series"]["lag"]] == [0, 6, 16]
    assert shown["busiest"][0]["topic"] == "t"
    assert shown["laggards"][0]["lag"] == 16
    assert [event["text"] for event in shown["events"]] == ["new", "old"]


def test_an_error_makes_the_state_unknown_and_keeps_the_last_one() -> None:
    assert overview(History(), [], "no answer")["health"]["level"] == Level.UNKNOWN
    history = History()
    history.add(a_sample())
    shown = overview(history, [], "no answer")
    assert shown["health"] == {"level": Level.UNKNOWN, "reasons": ["the last request failed: no answer"]}
    assert shown["totals"]["topics"] == 1


def test_groups_that_may_not_be_listed_have_no_lag() -> None:
    history = History()
    history.add(a_sample(groups=None))
    totals = overview(history, [], None)["totals"]
    assert (totals["groups"], totals["lag"]) == (None, None)


def test_bytes_per_second_are_those_between_two_looks_at_the_disks() -> None:
    history = History()
    history.add(a_sample(10.0, log_dirs={1: log_dirs({"t": [100]})}))
    history.add(a_sample(12.0, log_dirs={1: log_dirs({"t": [100]})}, sized_s=10.0))
    assert history.bytes_per_s == {}
    history.add(a_sample(14.0, log_dirs={1: log_dirs({"t": [500]})}))
    assert history.bytes_per_s == {"t": 100.0}
    history.add(a_sample(16.0, log_dirs={1: log_dirs({"t": [500]})}, sized_s=14.0))
    assert history.bytes_per_s == {"t": 100.0}
