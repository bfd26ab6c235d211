"""What is seen from outside, and how it is shown."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry, start_http_server
from rich.console import Console

from penstock.telemetry.demo.show import PARTITIONS, Setting
from penstock.telemetry.demo.view import line, screen
from penstock.telemetry.demo.watch import Sight, Watcher
from penstock.telemetry.message import TOPIC
from penstock.telemetry.pipeline.names import ALERTS
from penstock.telemetry.pipeline.progress import Progress
from penstock.testing import broker
from tests.telemetry.pipeline.progress_reports import NOW_S, report

BROKER = {
    "broker": 1,
    "address": "127.0.0.1:9092",
    "state": "up",
    "leads": 2,
    "replicas": 3,
    "in_sync": 3,
    "quorum": "leader",
}
CLUSTER = {
    "brokers": [BROKER, {**BROKER, "broker": 2, "state": "down", "quorum": "voter"}],
    "under_replicated": [1],
}


def an_alert(state: str, subject: str = "GPU-1") -> dict[str, Any]:
    return {
        "at": "2027-01-15T08:00:10.000Z",
        "rule": "xid",
        "subject": subject,
        "state": state,
        "severity": "critical",
        "hostname": "host-1",
        "measure": 79.0,
        "action": "reboot",
    }


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def setting(
    registry: CollectorRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Setting]:
    """A broker with ten messages, and the metrics of a pipeline that has read none; both may be slow."""
    monkeypatch.setattr("penstock.telemetry.demo.watch._ANSWER_S", 60.0)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    with broker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic(ALERTS, 1)]).values():
            made.result(60)
        send(running.bootstrap, TOPIC, [b"message"] * 10)
        yield Setting(running.bootstrap, tmp_path, 4, 1, 90.0, server.server_port, 8080)
    server.shutdown()
    server.server_close()
    thread.join()


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, str(number))
    assert producer.flush(60) == 0


def groups_of(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=60).result(60)
    return {group.group_id for group in listed.valid}


def test_the_watcher_counts_sent_and_read_messages_and_alerts(
    setting: Setting, registry: CollectorRegistry
) -> None:
    progress = Progress(registry, clock=lambda: NOW_S)
    clock = itertools.chain((0.0, 1.0), itertools.count(11.0))
    watcher = Watcher(setting, lambda: CLUSTER, lambda: next(clock))
    first = watcher.look()
    assert (first.produced, first.read, first.lag, first.batch_id) == (10, 0, 10, None)
    assert first.cluster == CLUSTER
    progress(report(batch_id=0))
    said = [an_alert("open"), an_alert("open", "GPU-2"), an_alert("resolved")]
    send(setting.bootstrap, ALERTS, [json.dumps(each).encode() for each in said])
    second = watcher.look()
    assert (second.read, second.batch_id, second.batch_s, second.freshness_s) == (100, 0, 3.0, 4.0)
    assert second.rows["dead_lettered"] == 5
    assert second.rows_per_s == 10.0
    while len((seen := watcher.look()).alerts) < len(said):
        pass
    assert [each["state"] for each in seen.alerts] == ["resolved", "open", "open"]
    assert seen.open_alerts == 1
    # The panels of groups show the lag of this one.
    assert groups_of(setting.bootstrap) == {"penstock-demo"}
    watcher.close()


def test_a_source_without_a_response_keeps_its_last_state(
    setting: Setting, registry: CollectorRegistry
) -> None:
    answers = iter((CLUSTER, None))
    watcher = Watcher(setting, lambda: next(answers))
    assert watcher.look().cluster == watcher.look().cluster == CLUSTER
    watcher.close()


SEEN = Sight(
    elapsed_s=61.0,
    cluster=CLUSTER,
    produced=5000,
    rows={"valid": 4000, "dead_lettered": 30, "duplicates": 20, "late": 10},
    rows_per_s=1280.0,
    batch_id=7,
    batch_s=1.25,
    alerts=(an_alert("open"), an_alert("open", "GPU-0fb1f923-405a-4830-a6eb-3ffa22a9ad4d")),
    open_alerts=3,
)


def test_a_line_has_it_all() -> None:
    assert line(SEEN) == (
        "  61 s  brokers 1/2  produced 5,000  read 4,060  lag 940  1,280 rows/s  batch 7 1.2 s  "
        "dead letters 30  alerts open 3  newest: xid open GPU-1 (host-1)"
    )
    assert "Spark is starting" in line(Sight())


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], setting: Setting) -> None:
    with screen(setting, Console(file=io.StringIO())) as see:
        for second in range(11):
            see(Sight(elapsed_s=float(second)))
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == ["0", "5", "10"]


def test_a_terminal_has_one_picture(tmp_path: Path) -> None:
    setting = Setting("127.0.0.1:9092", tmp_path, 4, 1, 90.0, 9400, 8080)
    shown = io.StringIO()
    with screen(setting, Console(file=shown, force_terminal=True, width=120, height=60)) as see:
        see(SEEN)
    picture = shown.getvalue()
    for part in (
        "1:01 of 90 s",
        "32 simulated GPUs",
        "127.0.0.1:9092",
        "http://127.0.0.1:8080/docs",
        "http://127.0.0.1:9400/metrics",
        "down",
        "1 partitions under-replicated",
        "5,000",
        "940",
        "1,280",
        "1.2 s",
        "alerts: 3 open",
        "GPU-1 ",
        "GPU-0fb1f923… ",
        "reboot",
    ):
        assert part in picture, part
