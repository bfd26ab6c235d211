"""The sinks of a running broker: each gets all events, and settings that are missing refuse the start."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.verification import Verifier, read_entry
from penstock.broker.base import audit_file
from penstock.broker.base.descriptor_writes import write_all
from penstock.model.errors import InvalidConfig, PenstockError
from penstock.testing import broker
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.broker.syslog_server import serving
from tests.secured import HOST
from tests.waiting import eventually


def names(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["event"] for line in lines]


def assert_whole(lines: list[bytes]) -> None:
    verifier = Verifier(repeats=True)
    for line in lines:
        verifier.take(read_entry("", line, b""))
    verifier.end()
    assert not verifier.findings


def test_all_sinks_of_a_broker_get_its_events(tmp_path: Path, events: Events) -> None:
    """Administrative changes are audited without an authorizer, too, if a sink keeps the events."""
    path = tmp_path / "logs" / "audit-{node}.log"
    with serving() as server:
        config = {
            "penstock.audit.destination": "log,topic,file,syslog",
            "penstock.audit.file.path": str(path),
            "penstock.audit.syslog.address": f"tcp://{HOST}:{server.port}",
        }
        with broker(data=tmp_path / "data", config=config) as running:
            with RawClient(running.bootstrap) as client:
                create_topic(client, "audited")
            queue = running.broker.stages.listening.audit_queue
            assert queue is not None
            eventually(lambda: not len(queue))
        eventually(lambda: len(server.messages) == 2)
    lines = (tmp_path / "logs" / "audit-1.log").read_bytes().splitlines()
    assert names(lines) == names(server.lines) == ["metadata_changed", "audit_stopped"]
    assert len(events.of("metadata_changed")) == 1
    assert len(events.of("audit_syslog_insecure")) == 1
    for each in (lines, server.lines):
        assert_whole(each)
    assert sorted(each.name for each in (tmp_path / "data").glob("audit-*")) == [
        "audit-file.head",
        "audit-syslog.head",
        "audit-topic.head",
    ]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"penstock.audit.destination": "file"}, "penstock.audit.file.path is empty"),
        ({"penstock.audit.destination": "syslog"}, "penstock.audit.syslog.address is empty"),
        ({"penstock.audit.destination": "log,off"}, "other elements beside off"),
        ({"penstock.audit.destination": "nowhere"}, "one of"),
        ({"penstock.audit.syslog.address": "udp://x:1"}, "tls://HOST:PORT"),
        (
            {"penstock.audit.destination": "topic", "penstock.audit.hash.key.file": "/nowhere/key"},
            "cannot be read",
        ),
        (
            {
                "penstock.audit.destination": "syslog",
                "penstock.audit.syslog.address": "tls://x:1",
                "penstock.audit.syslog.truststore.location": "/nowhere/ca.pem",
            },
            "certificates cannot be read",
        ),
    ],
)
def test_wrong_settings_refuse_the_start(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises((InvalidConfig, PenstockError), match=complaint), broker(config=config):
        pass


def test_a_key_is_long_enough_and_private(tmp_path: Path, events: Events) -> None:
    path = tmp_path / "key"
    config = {"penstock.audit.destination": "topic", "penstock.audit.hash.key.file": str(path)}
    path.write_bytes(b"short")
    with pytest.raises(InvalidConfig, match="less than 16 bytes"), broker(config=config):
        pass
    path.write_bytes(b"0123456789abcdef")
    path.chmod(0o644)
    with broker(config=config):
        assert len(events.of("audit_key_readable")) == 1


def test_a_changed_head_is_reported(tmp_path: Path, events: Events) -> None:
    config = {"penstock.audit.destination": "topic"}
    for _ in range(2):
        with broker(data=tmp_path, config=config) as running, RawClient(running.bootstrap) as client:
            create_topic(client, f"t{len(events.all)}")
            queue = running.broker.stages.listening.audit_queue
            assert queue is not None
            eventually(lambda: not len(queue))  # noqa: B023
        head = tmp_path / "audit-topic.head"
        head.write_bytes(head.read_bytes().replace(b'"seq":', b'"seq":1'))
    assert len(events.of("audit_head_invalid")) == 1


def test_requests_are_answered_while_the_disk_of_the_audit_file_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()

    def stalled(descriptor: int, data: bytes) -> None:
        may_write.wait(120.0)
        write_all(descriptor, data)

    monkeypatch.setattr(audit_file, "write_all", stalled)
    config = {"penstock.audit.destination": "file", "penstock.audit.queue.events.max": "20"}
    with broker(data=tmp_path, config=config) as running, RawClient(running.bootstrap) as client:
        waits = []
        for n in range(50):
            began = time.monotonic()
            create_topic(client, f"t{n}")
            waits.append(time.monotonic() - began)
        (sink,) = running.broker.stages.listening.audit_parts.sinks
        assert sink.dropped == 30
        assert sum(waits) < 20.0, "a request that waits for the disk would take 120 seconds"
        may_write.set()
    lines = (tmp_path / "audit" / "audit.log").read_bytes().splitlines()
    assert json.loads(lines[-1])["dropped"] == 30, "the number is inside the chain"
    assert_whole(lines)
