"""The first page: health has reasons, rates come from two samples, missing parts are not zeros."""

from __future__ import annotations

from penstock.console.views.events import Event
from penstock.console.views.knowledge import UNKNOWN, Gap
from penstock.console.views.overview import broker_rows, health_of, overview, quorum_view
from penstock.console.views.samples import GroupSample, History
from penstock.observability.health import Level
from tests.console.samples import a_sample, log_dirs


def test_a_healthy_cluster_has_no_reasons() -> None:
    assert (health_of(a_sample()).level, health_of(a_sample()).reasons) == (Level.HEALTHY, [])


def test_reasons_name_the_cause() -> None:
    sick = a_sample(
        brokers=(1,), fenced=(2,), leader=-1, isr=(1,), controller=-1, log_dirs={1: log_dirs({}, free=5)}
    )
    assert health_of(sick).level == Level.UNHEALTHY
    assert health_of(sick).reasons == [
        "1 partition has no leader",
        "there is no active controller",
        "1 partition lacks in-sync replicas",
        "broker 2 is fenced",
        "broker 1: the volume of /data has 5% free, less than 20%",
    ]


def test_a_broker_that_is_gone_or_silent_counts() -> None:
    assert "broker 2 does not respond" in str(health_of(a_sample(brokers=(1,))).reasons)
    silent = a_sample(log_dirs={1: log_dirs({}), 2: None})
    assert health_of(silent).level == Level.DEGRADED
    assert health_of(silent).reasons == ["broker 2 does not respond: no answer"]
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
    assert shown["health"] == {"level": Level.UNKNOWN, "reasons": ["no answer"]}
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
    assert history.byte_rate("t") is None
    history.add(a_sample(14.0, log_dirs={1: log_dirs({"t": [500]})}))
    assert history.bytes_per_s == {"t": 100.0}
    history.add(a_sample(16.0, log_dirs={1: log_dirs({"t": [500]})}, sized_s=14.0))
    assert history.bytes_per_s == {"t": 100.0}


def test_groups_of_a_silent_coordinator_are_not_zero() -> None:
    history = History()
    gap = Gap(UNKNOWN, "broker 2: no response")
    history.add(a_sample(groups=[], gaps={"groups": gap}, ends={("t", 0): 5}))
    shown = overview(history, [], None)
    assert shown["gaps"]["groups"] == {"state": "unknown", "reason": "broker 2: no response"}
    assert shown["totals"]["lag"] is None
    assert shown["gaps"]["lag"] == shown["gaps"]["groups"]


def test_offsets_that_are_not_known_make_the_lag_a_lower_bound() -> None:
    history = History()
    unknown = GroupSample("a", "Stable", "classic", "", 1, {}, gap=Gap(UNKNOWN, "no response"))
    known = GroupSample("b", "Stable", "classic", "", 1, {("t", 0): 3})
    history.add(a_sample(groups=[unknown, known], ends={("t", 0): 5}))
    shown = overview(history, [], None)
    assert (shown["totals"]["lag"], shown["gaps"]["lag"]["reason"]) == (2, "no response")
    assert shown["series"]["lag"] == []
    history.add(a_sample(2.0, groups=[known], ends={}))
    assert overview(history, [], None)["totals"]["lag"] is None
    assert "the end of 1 partition is" in overview(history, [], None)["gaps"]["lag"]["reason"]


def test_sizes_of_silent_brokers_are_not_zero() -> None:
    history = History()
    history.add(a_sample(log_dirs={1: None, 2: None}))
    shown = overview(history, [], None)
    assert (shown["totals"]["size"], shown["gaps"]["size"]["state"]) == (None, "unknown")


def test_rates_are_unknown_before_the_second_sample_and_leave_out_internal_topics() -> None:
    history = History()
    topics = ("__consumer_offsets", "t")
    history.add(a_sample(0.0, topics=topics, ends={("t", 0): 0, ("__consumer_offsets", 0): 0}))
    shown = overview(history, [], None)
    assert shown["totals"]["records_per_s"] is shown["totals"]["bytes_per_s"] is shown["busiest"] is None
    history.add(a_sample(2.0, topics=topics, ends={("t", 0): 20, ("__consumer_offsets", 0): 900}))
    shown = overview(history, [], None)
    assert shown["totals"]["records_per_s"] == 10.0
    assert [row["topic"] for row in shown["busiest"]] == ["t"]


def test_the_first_rate_counts_from_the_time_of_the_offsets() -> None:
    """The first sample opens connections: its offsets are read two seconds after it has begun."""
    history = History()
    history.add(a_sample(10.0, ended_s=12.0, ends={("t", 0): 0}))
    history.add(a_sample(13.0, ended_s=13.1, ends={("t", 0): 110}))
    assert history.record_rate("t") == 100.0


def test_samples_that_are_close_or_far_apart_have_no_rate() -> None:
    history = History()
    history.add(a_sample(10.0, ends={("t", 0): 0}))
    history.add(a_sample(10.2, ends={("t", 0): 100}))
    assert history.record_rate("t") is None
    history.add(a_sample(12.0, ends={("t", 0): 200}))
    assert history.record_rate("t") == 100.0
    # The page was closed for an hour: an average over it is no rate of now.
    history.add(a_sample(3612.0, ends={("t", 0): 200}))
    assert history.record_rate("t") is None
