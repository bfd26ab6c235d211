"""Active alerts: the findings of health with their age, and groups whose lag grows."""

from __future__ import annotations

from penstock.console.views.alerts import Alerts, grows
from penstock.console.views.knowledge import REFUSED
from penstock.console.views.samples import GroupSample, History
from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from tests.console.samples import a_sample, log_dirs


def test_findings_are_alerts_from_the_first_sample_that_has_them() -> None:
    history, alerts = History(), Alerts()
    for time_s, sample in (
        (10.0, a_sample(10.0)),
        (13.0, a_sample(13.0, isr=(1,))),
        (16.0, a_sample(16.0, isr=(1,), leader=-1)),
    ):
        history.add(sample)
        alerts.update(history)
        assert sample.time_s == time_s
    assert [(a.severity, a.text, a.since_s) for a in alerts.active] == [
        ("critical", "1 partition has no leader", 16.0),
        ("warning", "1 partition lacks in-sync replicas", 13.0),
    ]
    history.add(a_sample(19.0))
    alerts.update(history)
    assert alerts.active == []
    history.add(a_sample(22.0, isr=(1,)))
    alerts.update(history)
    assert alerts.active[0].since_s == 22.0, "an alert that comes back is a new one"


def test_health_that_a_user_may_not_see_is_no_alert() -> None:
    history, alerts = History(), Alerts()
    refused = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    history.add(a_sample(log_dirs={1: refused, 2: refused}))
    alerts.update(history)
    assert alerts.active == []
    assert alerts.hidden is not None
    assert alerts.hidden.state == REFUSED
    history.add(a_sample(4.0))
    alerts.update(history)
    assert alerts.hidden is None


def test_the_same_finding_of_two_brokers_is_two_alerts() -> None:
    history, alerts = History(), Alerts()
    full = log_dirs({"t": [10]}, free=5)
    history.add(a_sample(log_dirs={1: full, 2: full}))
    alerts.update(history)
    assert len(alerts.active) == len({alert.text for alert in alerts.active}) == 2
    assert {alert.page for alert in alerts.active} == {"cluster"}


def test_a_group_alerts_when_its_lag_grows_minute_by_minute() -> None:
    history, alerts = History(), Alerts()
    found = []
    for n in range(120):
        # A commit a minute: between two of them the lag grows, also that of a group that keeps up.
        behind = GroupSample("a/b", "Stable", "classic", "", 1, {("t", 0): n // 20 * 50})
        steady = GroupSample("steady", "Stable", "classic", "", 1, {("t", 0): n // 20 * 200})
        history.add(a_sample(3.0 * n, ends={("t", 0): 10 * n}, groups=[behind, steady]))
        alerts.update(history)
        found.append([alert.page for alert in alerts.active])
    assert found[90] == [], "five minutes have not passed"
    assert found[-1] == ["groups/a%2Fb"]


def test_minutes_without_a_sample_do_not_grow() -> None:
    assert grows([(60.0 * n, n) for n in range(6)], 300.0)
    assert not grows([(60.0 * n, n) for n in (0, 1, 2, 4, 5)], 300.0)
    assert not grows([(60.0 * n, 5) for n in range(6)], 300.0)
    assert not grows([], 300.0)
