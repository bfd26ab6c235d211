"""The state of a backup over HTTP: that of a running process, and one that does not respond."""

from __future__ import annotations

import socket

from starlette.testclient import TestClient

from penstock.backup.running import BackupMetrics, Schedule
from penstock.broker.base.system_ports import SystemClock
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.console.web.backup_routes import BackupStatus
from tests.console.backups import backup


def client(found: BackupStatus | None) -> TestClient:
    settings = ConsoleSettings(bootstrap=[("127.0.0.1", 1)], hosts=["testserver"], backup=found)
    return TestClient(build_app(settings), headers={"x-penstock-console": "1"})


def test_the_age_of_the_newest_cut_and_the_last_verification_are_shown() -> None:
    metrics = BackupMetrics(SystemClock().now_ms(), Schedule(every_ms=60_000, verify_every_ms=60_000))
    metrics.newest_cut_ms = metrics.start_ms - 3_600_000
    metrics.unrestorable = 2
    with backup(metrics) as url, client(BackupStatus(url)) as console:
        assert console.get("/api/session").json()["backup"]
        found = console.get("/api/backup").json()
    assert 3_600 <= found["newest_cut_age_s"] < 3_700
    assert (found["is_late"], found["interval_s"], found["verified_age_s"]) == (True, 60.0, None)
    assert found["unrestorable_partitions"] == 2


def test_a_backup_that_does_not_respond_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with client(BackupStatus(f"http://127.0.0.1:{port}")) as console:
        answer = console.get("/api/backup")
    assert answer.status_code == 503
    assert f"the backup at http://127.0.0.1:{port} does not respond" in answer.json()["message"]


def test_without_a_backup_there_is_no_route() -> None:
    with client(None) as console:
        assert not console.get("/api/session").json()["backup"]
        assert console.get("/api/backup").status_code == 404
