"""The rules of `python -m alarms`: those that users get, with shorter times only; a fault for each."""

from __future__ import annotations

import re

import pytest

from alarms.faults import FAULTS_IN_ORDER
from alarms.rules import AGES, WINDOWS, alert_names, as_shipped, shortened
from penstock.observability.health import ClientFacts, ClusterFacts, client_health, cluster_health


def test_every_alert_has_a_fault() -> None:
    covered = {alert for fault in FAULTS_IN_ORDER for alert in fault.alerts}
    assert covered == set(alert_names())


def test_no_long_window_is_left_and_the_thresholds_stay() -> None:
    for rule in (rule for group in shortened()["groups"] for rule in group["rules"]):
        assert not re.search(r"\[\d+[mh]\]", rule["expr"]), rule["expr"]
        assert rule.get("for", "2s") == "2s"
        assert not re.search(r"\d+[mhd]\b", rule["expr"]), rule["expr"]
    assert all(re.fullmatch(r"[^mhd]*", short.replace("offset", "")) for short in WINDOWS.values())
    latency = next(r for r in shortened()["groups"][0]["rules"] if r["alert"] == "PenstockHighLatency")
    assert latency["expr"].endswith("> 0.1")


def test_the_hour_of_a_late_verification_is_shortened_and_no_threshold() -> None:
    """A run cannot wait for the hour that comes to two intervals; the lag of a link, a minute, it can."""
    shipped = {r["alert"]: r["expr"] for group in as_shipped()["groups"] for r in group["rules"]}
    short = {r["alert"]: r["expr"] for group in shortened()["groups"] for r in group["rules"]}
    changed = {name for name in shipped for age in AGES if age in shipped[name]}
    assert changed == {"PenstockBackupLate", "PenstockBackupUnverified"}
    assert not [name for name in changed for age in AGES if age in short[name]]
    assert short["PenstockLinkLag"] == shipped["PenstockLinkLag"]


@pytest.mark.parametrize("number", [1, 6])
def test_health_has_the_reasons_that_faults_wait_for(number: int) -> None:
    """Of one partition, the report has another text than of several: a run waited in vain for it."""
    reasons = {fault.alerts[0]: fault.reason for fault in FAULTS_IN_ORDER if fault.reason}
    cluster = cluster_health(ClusterFacts(has_controller=True, offline_partitions=number))
    assert any(reasons["PenstockBrokerDown"] in reason for reason in cluster.reasons)
    clients = client_health(ClientFacts(refused=number))
    first = next(f for f in FAULTS_IN_ORDER if f.name == "refused connections")
    assert any(first.reason in reason for reason in clients.reasons)
