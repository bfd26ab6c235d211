"""The rules of `python -m alarms`: those that users get, with shorter times only; a fault for each."""

from __future__ import annotations

import re

from alarms.faults import FAULTS_IN_ORDER
from alarms.rules import WINDOWS, alert_names, shortened


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
