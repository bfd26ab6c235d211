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

from penstock.observability.metrics import BACKUP_METRICS, METRICS
from tests.observability.prometheus import prometheus_binary

RULES = files("penstock.observability").joinpath("alerts.yml").read_text(encoding="utf-8")
PARSED = {rule["alert"]: rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]}
_INSTANCE = 'instance="b1",job="penstock"'
_INFO = 'penstock_cluster_info{cluster_id="c",broker_id="1",' + _INSTANCE + "}"
_BUCKET = (
    'penstock_request_duration_seconds_bucket{api="Produce",listener="client",' + _INSTANCE + ',le="%s"}'
)
_REJECTED = "penstock_connections_rejected_total{" + _INSTANCE + "}"
_OPENED = 'penstock_connections_opened_total{listener="PLAINTEXT",' + _INSTANCE + "}"
_FAILED = 'penstock_authentications_total{mechanism="PLAIN",result="failure",' + _INSTANCE + "}"
_FAILED_TLS = 'penstock_authentications_total{mechanism="TLS",result="failure",' + _INSTANCE + "}"
_REPLICA = 'penstock_replica_lag_seconds{topic="t",partition="0",replica="2",' + _INSTANCE + "}"
_LAG = 'penstock_group_lag_seconds{group="g",topic="t",' + _INSTANCE + "}"
_IDLE = 'penstock_group_idle_seconds{group="g",' + _INSTANCE + "}"
_SHARE_LAG = 'penstock_share_group_lag_seconds{group="g",topic="t",' + _INSTANCE + "}"
_DELIVERIES = 'penstock_share_deliveries_total{group="g",topic="t",' + _INSTANCE + "}"
_LOOP = "penstock_loop_lag_seconds_bucket{" + _INSTANCE + ',le="%s"}'
_SYNCS = 'penstock_fsync_seconds_bucket{dir="/d",' + _INSTANCE + ',le="%s"}'
_DROPPED = 'penstock_otlp_dropped_total{signal="spans",' + _INSTANCE + "}"
_RECORDS = 'penstock_topic_records_in_total{topic="t",' + _INSTANCE + "}"
_EXPIRY = 'penstock_tls_certificate_expiry_timestamp_seconds{listener="SSL",' + _INSTANCE + "}"


def _own(name: str, labels: str = "") -> str:
    return f"penstock_{name}{{{labels}{_INSTANCE}}}"


_FREE, _TOTAL, _FREE_MIN = (
    _own(name, 'dir="/d",') for name in ("disk_free_bytes", "disk_total_bytes", "disk_free_min_ratio")
)


def _backup(name: str) -> str:
    return f'penstock_backup_{name}{{instance="backup",job="penstock-backup"}}'


#: alert: (series that fire it, series that do not, minutes until then)
CASES: dict[str, tuple[dict[str, str], dict[str, str], int]] = {
    "PenstockHighLatency": (
        {_BUCKET % "0.064": "0+0x30", _BUCKET % "0.128": "0+600x30", _BUCKET % "+Inf": "0+600x30"},
        {_BUCKET % "0.064": "0+600x30", _BUCKET % "0.128": "0+600x30", _BUCKET % "+Inf": "0+600x30"},
        20,
    ),
    "PenstockLowThroughput": ({_RECORDS: "0+600x80 48000+1x40"}, {_RECORDS: "0+600x120"}, 100),
    "PenstockReplicaLag": ({_REPLICA: "11x10"}, {_REPLICA: "10x10"}, 5),
    "PenstockIsrShrink": (
        {_own("isr_shrinks_unplanned_total"): "0 0 1x10"},
        {_own("isr_shrinks_unplanned_total"): "1x12", _own("isr_shrinks_total"): "0 0 1x10"},
        4,
    ),
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
        {_FREE: "9x10", _TOTAL: "100x10", _FREE_MIN: "0.1x10"},
        {_FREE: "10x10", _TOTAL: "100x10", _FREE_MIN: "0.1x10"},
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
    "PenstockConsumerLag": ({_LAG: "61x10", _IDLE: "0x10"}, {_LAG: "60x10", _IDLE: "0x10"}, 8),
    "PenstockShareGroupLag": (
        {_SHARE_LAG: "61x10", _DELIVERIES: "1x10"},
        {_SHARE_LAG: "60x10", _DELIVERIES: "1x10"},
        8,
    ),
    "PenstockDeadLetters": (
        {_own("dead_letters_total"): "0 0 1x10", _own("dead_letters_failed_total"): "0x12"},
        {_own("dead_letters_total"): "7x12", _own("dead_letters_failed_total"): "0x12"},
        4,
    ),
    "PenstockTransactionsOverdue": (
        {_own("transactions_overdue"): "1x10"},
        {_own("transactions_overdue"): "1 1 0x8"},
        5,
    ),
    "PenstockTwoPhaseTransactionLate": (
        {_own("transactions_two_phase_late"): "1x10"},
        {_own("transactions_two_phase_late"): "1 1 0x8"},
        5,
    ),
    "PenstockClockSkew": (
        {_own("clock_skew_seconds"): "-31x10"},
        {_own("clock_skew_seconds"): "30x10"},
        8,
    ),
    "PenstockLoopLag": (
        {_LOOP % "0.064": "0+0x30", _LOOP % "0.128": "0+600x30", _LOOP % "+Inf": "0+600x30"},
        {_LOOP % "0.064": "0+600x30", _LOOP % "0.128": "0+600x30", _LOOP % "+Inf": "0+600x30"},
        20,
    ),
    "PenstockFileDescriptors": (
        {_own("open_files"): "81x10", _own("open_files_limit"): "100x10"},
        {_own("open_files"): "80x10", _own("open_files_limit"): "100x10"},
        8,
    ),
    "PenstockSyncLatency": (
        {_SYNCS % "0.128": "0+0x30", _SYNCS % "0.256": "0+600x30", _SYNCS % "+Inf": "0+600x30"},
        {_SYNCS % "0.128": "0+600x30", _SYNCS % "0.256": "0+600x30", _SYNCS % "+Inf": "0+600x30"},
        20,
    ),
    "PenstockTelemetryDropped": ({_DROPPED: "0 0 3x10"}, {_DROPPED: "3x12"}, 4),
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
    "PenstockClockSuspect": ({_own("clock_suspect"): "1x5"}, {_own("clock_suspect"): "0x5"}, 3),
    "PenstockArchiveUnavailable": (
        {_own("remote_archive_available"): "0x10"},
        {_own("remote_archive_available"): "1x10"},
        6,
    ),
    "PenstockTieringLag": (
        {_own("remote_copy_lag_bytes", 'topic="t",'): "0+1000x60"},
        {_own("remote_copy_lag_bytes", 'topic="t",'): "0 5000 9000 2000 7000 0x60"},
        45,
    ),
    "PenstockLinkDown": (
        {_own("link_up", 'link="w",'): "0x10"},
        {_own("link_up", 'link="w",'): "1x10"},
        6,
    ),
    "PenstockLinkLag": (
        {_own("link_lag_seconds", 'link="w",topic="t",'): "61x10"},
        {_own("link_lag_seconds", 'link="w",topic="t",'): "60x10"},
        6,
    ),
    "PenstockLinkDiverged": (
        {_own("link_partitions", 'link="w",phase="diverged",'): "1x10"},
        {_own("link_partitions", 'link="w",phase="mirroring",'): "1x10"},
        3,
    ),
    "PenstockLinkMissed": (
        {_own("link_missed_records_total", 'link="w",topic="t",'): "0 0 5x10"},
        {_own("link_missed_records_total", 'link="w",topic="t",'): "5x12"},
        4,
    ),
    "PenstockTieringErrors": (
        {_own("remote_copy_errors_total", 'topic="t",'): "0+1x40"},
        {_own("remote_copy_errors_total", 'topic="t",'): "0x5 1x35"},
        30,
    ),
    "PenstockTieringContradicted": (
        {_own("remote_deletion_suspended", 'topic="t",'): "1x10"},
        {_own("remote_deletion_suspended", 'topic="t",'): "0 1 0x10"},
        7,
    ),
    "PenstockBackupLate": (
        {_backup("interval_seconds"): "60x20", _backup("newest_cut_timestamp_seconds"): "0x20"},
        {_backup("interval_seconds"): "60x20", _backup("newest_cut_timestamp_seconds"): "0+60x20"},
        8,
    ),
    "PenstockBackupDamaged": (
        {_backup("unrestorable_partitions"): "0 0 1x10"},
        {_backup("unrestorable_partitions"): "0x12"},
        4,
    ),
    "PenstockBackupUnverified": (
        {_backup("verification_interval_seconds"): "600x90", _backup("verified_timestamp_seconds"): "0x90"},
        {_backup("verification_interval_seconds"): "600x90", _backup("verified_timestamp_seconds"): "600x90"},
        85,
    ),
    "PenstockBackupDown": (
        {'up{instance="backup",job="penstock-backup"}': "0x10"},
        {'up{instance="backup",job="penstock-backup"}': "1x10", 'up{instance="b1",job="other"}': "0x10"},
        5,
    ),
    "PenstockCertificateExpires": ({_EXPIRY: "1000000x5"}, {_EXPIRY: "2000000x5"}, 2),
}

_SLOW_FOR_20 = {
    _BUCKET % "0.064": "0x20 600+600x20",
    _BUCKET % "0.128": "0+600x41",
    _BUCKET % "+Inf": "0+600x41",
}
#: a broker of another cluster in the same job
_OTHER = 'instance="b9",job="penstock"'
_OTHER_INFO = 'penstock_cluster_info{cluster_id="other",broker_id="1",' + _OTHER + "}"
#: more cases: (alert, series, minutes, whether it fires)
MORE_CASES: list[tuple[str, dict[str, str], int, bool]] = [
    # A controller, or partitions with leaders, of another cluster of the job.
    (
        "PenstockNoController",
        {
            _own("active_controller"): "0x5",
            _OTHER_INFO: "1x5",
            f"penstock_active_controller{{{_OTHER}}}": "1x5",
        },
        3,
        True,
    ),
    (
        "PenstockPartitionsOffline",
        {
            _own("offline_partitions"): "1x5",
            _OTHER_INFO: "1x5",
            f"penstock_offline_partitions{{{_OTHER}}}": "0x5",
        },
        3,
        True,
    ),
    # One message, and nothing from then on; a batch job that ends; a cluster that is not an hour old.
    ("PenstockLowThroughput", {_RECORDS: "0x30 1x120"}, 130, False),
    ("PenstockLowThroughput", {_RECORDS: "0x60 0+6000x40 240000x60"}, 125, False),
    ("PenstockLowThroughput", {_INFO: "_x70 1x130", _RECORDS: "_x70 0+6000x45 270000x60"}, 145, False),
    # Groups without members and commits: yesterday's alerts, those of last week do not.
    ("PenstockConsumerLag", {_LAG: "9000x10", _IDLE: "80000x10"}, 8, True),
    ("PenstockConsumerLag", {_LAG: "90000x10", _IDLE: "86400x10"}, 8, False),
    ("PenstockShareGroupLag", {_SHARE_LAG: "90000x10"}, 8, False),
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
            assert name.removesuffix("_bucket") in {**METRICS, **BACKUP_METRICS}, name
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "summary" in rule["annotations"]


def _test(name: str, series: dict[str, str], minutes: int, fires: bool) -> dict[str, Any]:
    series = {_INFO: "1x200", **series}
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
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def _quiet_hour() -> dict[str, str]:
    """The series of three brokers in an ordinary hour: steady load, one planned restart, a group at rest.

    Broker 3 is stopped in minute 21, and partitions led by the others lose it as an in-sync replica.
    """
    series: dict[str, str] = {}
    for broker in (1, 2, 3):
        label = f'instance="b{broker}",job="penstock"'
        gone = broker == 3

        def own(name: str, values: str, labels: str = "", label: str = label) -> None:
            series[f"penstock_{name}{{{labels}{label}}}"] = values

        def steady(value: float, gone: bool = gone) -> str:
            return f"{value}x20 _ {value}x61" if gone else f"{value}x82"

        def rising(step: float, gone: bool = gone) -> str:
            return f"0+{step}x20 _ 0+{step}x61" if gone else f"0+{step}x82"

        series[f"up{{{label}}}"] = "1x20 0 1x61" if gone else "1x82"
        own("cluster_info", steady(1), f'cluster_id="c",broker_id="{broker}",')
        own("topic_records_in_total", rising(6000), 'topic="t",')
        own("active_controller", steady(int(broker == 1)))
        own("offline_partitions", steady(0))
        own("under_min_isr_partitions", steady(0))
        own("under_replicated_partitions", steady(0) if gone else "0x20 3x3 0x59")
        own("isr_shrinks_total", steady(0) if gone else "0x20 3x62")
        own("isr_shrinks_unplanned_total", steady(0))
        own("brokers", steady(0) if gone else "0x20 1 0x61", 'state="fenced",')
        own("replica_lag_seconds", steady(0.2), 'topic="t",partition="0",replica="2",')
        own("disk_free_bytes", steady(40), 'dir="/d",')
        own("disk_total_bytes", steady(100), 'dir="/d",')
        own("disk_free_min_ratio", steady(0.2), 'dir="/d",')
        own("open_files", steady(500))
        own("open_files_limit", steady(1024))
        own("clock_skew_seconds", steady(0.02))
        own("clock_suspect", steady(0))
        own("transactions_overdue", steady(0))
        own("transactions_two_phase_late", steady(0))
        own("dead_letters_total", steady(4))
        own("dead_letters_failed_total", steady(0))
        own("connections_rejected_total", steady(0))
        own("connections_opened_total", rising(10), 'listener="PLAINTEXT",')
        own("otlp_dropped_total", steady(0), 'signal="spans",')
        own("corruption_found_total", steady(0))
        own("directories_full", steady(0))
        own("directories_offline", steady(0))
        own("tls_certificate_expiry_timestamp_seconds", steady(9_000_000), 'listener="SSL",')
        for bound, share in (("0.016", 590), ("0.064", 599), ("0.128", 600), ("+Inf", 600)):
            own(
                "request_duration_seconds_bucket",
                rising(share),
                f'api="Produce",listener="client",le="{bound}",',
            )
            own("loop_lag_seconds_bucket", rising(share), f'le="{bound}",')
            own("fsync_seconds_bucket", rising(share), f'dir="/d",le="{bound}",')
    series |= {_backup("interval_seconds"): "60x82", _backup("newest_cut_timestamp_seconds"): "0+60x82"}
    series |= {_backup("start_time_seconds"): "0x82", _backup("unrestorable_partitions"): "0x82"}
    series |= {
        _backup("verification_interval_seconds"): "86400x82",
        _backup("verified_timestamp_seconds"): "0x82",
    }
    series['up{instance="backup",job="penstock-backup"}'] = "1x82"
    # A link that goes on, and had errors when it began.
    series[_own("link_up", 'link="w",')] = "0x2 1x80"
    series[_own("link_lag_seconds", 'link="w",topic="t",')] = "0 30 0x80"
    series[_own("link_partitions", 'link="w",phase="mirroring",')] = "3x82"
    series[_own("link_missed_records_total", 'link="w",topic="t",')] = "7x82"
    # Tiered storage that copies each segment soon after it was sealed.
    series[_own("remote_archive_available")] = "1x82"
    series[_own("remote_copy_lag_bytes", 'topic="t",')] = "0 4000 0 9000 0x78"
    series[_own("remote_copy_errors_total", 'topic="t",')] = "0x82"
    series[_own("remote_deletion_suspended", 'topic="t",')] = "0x82"
    # A group that was abandoned last week, one that keeps up, and a share group that nothing reads.
    for name, lag, idle in (("old", 600_000, 600_000), ("live", 3, 0)):
        series[f'penstock_group_lag_seconds{{group="{name}",topic="t",{_INSTANCE}}}'] = f"{lag}x82"
        series[f'penstock_group_idle_seconds{{group="{name}",{_INSTANCE}}}'] = f"{idle}x82"
    series[_SHARE_LAG] = "600000x82"
    return series


def test_the_quiet_hour_has_the_metrics_of_all_rules() -> None:
    known = {series.partition("{")[0] for series in _quiet_hour()}
    for rule in PARSED.values():
        needed = set(re.findall(r"penstock_\w+", rule["expr"]))
        # A quiet broker has no sample of these.
        needed -= {"penstock_connections_refused_total", "penstock_authentications_total"}
        assert needed - {"penstock_share_deliveries_total"} <= known, rule["alert"]


@pytest.mark.process
def test_no_alert_fires_in_a_quiet_hour_with_a_planned_restart(tmp_path: Path) -> None:
    promtool = prometheus_binary("promtool")
    (tmp_path / "alerts.yml").write_text(RULES, encoding="utf-8")
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in _quiet_hour().items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [],
            }
            for minute in range(80)
        ],
    }
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    command = [promtool, "test", "rules", "tests.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
