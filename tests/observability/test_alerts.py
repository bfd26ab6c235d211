"""The alert rules: valid, about metrics that exist, and each fires at its threshold and not below.

`promtool` evaluates the rules on made-up series.
"""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.observability.names import METRICS
from tests.observability.prometheus import prometheus_binary

RULES = files("penstock.observability").joinpath("alerts.yml").read_text(encoding="utf-8")
PARSED = {rule["alert"]: rule for rule in yaml.safe_load(RULES)["groups"][0]["rules"]}
_INSTANCE = 'instance="b1",job="penstock"'
_BUCKET = (
    'penstock_request_duration_seconds_bucket{api="Produce",listener="client",' + _INSTANCE + ',le="%s"}'
)
_REJECTED = "penstock_connections_rejected_total{" + _INSTANCE + "}"
_OPENED = 'penstock_connections_opened_total{listener="PLAINTEXT",' + _INSTANCE + "}"
_FAILED = 'penstock_authentications_total{mechanism="PLAIN",result="failure",' + _INSTANCE + "}"
_FAILED_TLS = 'penstock_authentications_total{mechanism="TLS",result="failure",' + _INSTANCE + "}"
_REPLICA = 'penstock_replica_lag_seconds{topic="t",partition="0",replica="2",' + _INSTANCE + "}"
_LAG = 'penstock_group_lag_seconds{group="g",topic="t",' + _INSTANCE + "}"
_RECORDS = 'penstock_topic_records_in_total{topic="t",' + _INSTANCE + "}"
_EXPIRY = 'penstock_tls_certificate_expiry_timestamp_seconds{listener="SSL",' + _INSTANCE + "}"


def _own(name: str, labels: str = "") -> str:
    return f"penstock_{name}{{{labels}{_INSTANCE}}}"


#: alert: (series that fire it, series that do not, minutes until then)
CASES: dict[str, tuple[dict[str, str], dict[str, str], int]] = {
    "PenstockHighLatency": (
        {_BUCKET % "0.064": "0+0x30", _BUCKET % "0.128": "0+600x30", _BUCKET % "+Inf": "0+600x30"},
        {_BUCKET % "0.064": "0+600x30", _BUCKET % "0.128": "0+600x30", _BUCKET % "+Inf": "0+600x30"},
        20,
    ),
    "PenstockLowThroughput": ({_RECORDS: "0+600x80 48000+1x40"}, {_RECORDS: "0+600x120"}, 100),
    "PenstockReplicaLag": ({_REPLICA: "11x10"}, {_REPLICA: "10x10"}, 5),
    "PenstockIsrShrink": ({_own("isr_shrinks_total"): "0 0 1x10"}, {_own("isr_shrinks_total"): "1x12"}, 4),
    "PenstockUnderReplicated": (
        {_own("under_replicated_partitions"): "1x10"},
        {_own("under_replicated_partitions"): "1x2 0x8"},
        8,
    ),
    "PenstockUnderMinIsr": (
        {_own("under_min_isr_partitions"): "1x10"},
        {_own("under_min_isr_partitions"): "0x10"},
        3,
    ),
    "PenstockPartitionsOffline": (
        {_own("offline_partitions"): "1x10"},
        {_own("offline_partitions"): "0x10"},
        3,
    ),
    "PenstockDiskSpaceLow": (
        {_own("disk_free_bytes", 'dir="/d",'): "19x10", _own("disk_total_bytes", 'dir="/d",'): "100x10"},
        {_own("disk_free_bytes", 'dir="/d",'): "20x10", _own("disk_total_bytes", 'dir="/d",'): "100x10"},
        8,
    ),
    "PenstockDiskFull": ({_own("directories_full"): "1x5"}, {_own("directories_full"): "0x5"}, 2),
    "PenstockDirectoryOffline": (
        {_own("directories_offline"): "1x5"},
        {_own("directories_offline"): "0x5"},
        2,
    ),
    "PenstockConnectionErrors": (
        {_REJECTED: "0+2x30", _OPENED: "0+100x30"},
        {_REJECTED: "0+1x30", _OPENED: "0+100x30"},
        20,
    ),
    "PenstockConsumerLag": ({_LAG: "61x10"}, {_LAG: "60x10"}, 8),
    "PenstockBrokerDown": ({f"up{{{_INSTANCE}}}": "0x5"}, {f"up{{{_INSTANCE}}}": "1x5"}, 3),
    "PenstockBrokerFenced": (
        {_own("brokers", 'state="fenced",'): "1x5"},
        {_own("brokers", 'state="fenced",'): "0x5"},
        3,
    ),
    "PenstockNoController": ({_own("active_controller"): "0x5"}, {_own("active_controller"): "1x5"}, 3),
    "PenstockCorruption": (
        {_own("corruption_found_total"): "0 0 1x10"},
        {_own("corruption_found_total"): "0x12"},
        4,
    ),
    "PenstockCertificateExpires": ({_EXPIRY: "1000000x5"}, {_EXPIRY: "2000000x5"}, 2),
}

_SLOW_FOR_20 = {
    _BUCKET % "0.064": "0x20 600+600x20",
    _BUCKET % "0.128": "0+600x41",
    _BUCKET % "+Inf": "0+600x41",
}
#: more cases: (alert, series, minutes, whether it fires)
MORE_CASES: list[tuple[str, dict[str, str], int, bool]] = [
    # Slow requests for 20 minutes, and quick ones from then on.
    ("PenstockHighLatency", _SLOW_FOR_20, 20, True),
    ("PenstockHighLatency", _SLOW_FOR_20, 30, False),
    # Failed logins, on a broker that has refused and rejected no connection.
    ("PenstockConnectionErrors", {_FAILED: "0+2x30", _REJECTED: "0x30", _OPENED: "0+100x30"}, 20, True),
    ("PenstockConnectionErrors", {_FAILED: "0+1x30", _REJECTED: "0x30", _OPENED: "0+100x30"}, 20, False),
    # A certificate without a principal is rejected, too: it counts once.
    (
        "PenstockConnectionErrors",
        {_FAILED_TLS: "0+1x30", _REJECTED: "0+1x30", _OPENED: "0+100x30"},
        20,
        False,
    ),
]


def test_each_rule_has_a_case_and_every_metric_exists() -> None:
    assert set(CASES) == set(PARSED)
    for rule in PARSED.values():
        for name in re.findall(r"penstock_\w+", rule["expr"]):
            assert name.removesuffix("_bucket") in METRICS, name
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "summary" in rule["annotations"]


def _test(name: str, series: dict[str, str], minutes: int, fires: bool) -> dict[str, Any]:
    return {
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": 1 if fires else 0}],
            }
        ],
    }


def test_failed_logins_are_connection_errors() -> None:
    assert 'penstock_authentications_total{result="failure"' in PARSED["PenstockConnectionErrors"]["expr"]


@pytest.mark.process
def test_each_rule_fires_at_its_threshold_and_not_below(tmp_path: Path) -> None:
    promtool = prometheus_binary("promtool")
    (tmp_path / "alerts.yml").write_text(RULES, encoding="utf-8")
    tests = []
    for name, (firing, quiet, minutes) in CASES.items():
        tests += [_test(name, firing, minutes, True), _test(name, quiet, minutes, False)]
    tests += [_test(*case) for case in MORE_CASES]
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
