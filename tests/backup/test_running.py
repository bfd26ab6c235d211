"""A backup that runs: its metrics and verifications, and failures of the cluster and of the store."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.archive.errors import ArchiveRefused
from penstock.archive.objects import open_archive
from penstock.backup.running import BackupMetrics, RunningBackup, Schedule, serve_metrics
from penstock.backup.source import Cluster, SourceFailed
from penstock.backup.taking import Backup
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.observability.exposition import Format
from penstock.testing import broker
from tests.backup.clusters import create, produce, store_in
from tests.broker.nodes import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")


def shown(metrics: BackupMetrics) -> dict[str, float]:
    """The samples of the page."""
    text = b"".join(metrics.page(Format.PROMETHEUS).chunks).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("penstock_backup_"): float(value) for name, value in map(str.split, lines)}


@pytest.mark.slow
def test_cuts_verifications_and_failures_are_counted(tmp_path: Path) -> None:
    """What is not known has no sample: an archive without a cut, and one that was never verified."""
    reports: list[str] = []

    async def main(bootstrap: str) -> None:
        clock, rng, store = SystemClock(), SystemRng(), store_in(tmp_path / "archive")
        root = await open_archive(store, rng, clock.now_ms())
        cluster = Cluster(bootstrap, rng)
        backup = Backup(cluster, store, root.id, rng, clock)
        metrics = BackupMetrics(clock.now_ms(), Schedule(every_ms=100, verify_every_ms=1))
        assert shown(metrics).keys() == {
            "start_time_seconds", "interval_seconds", "cuts_total", "failures_total",
            "verification_interval_seconds", "verification_failures_total",
        }  # fmt: skip
        running = RunningBackup(backup, store, clock, metrics, lambda *_: None, reports.append)
        server, port = await serve_metrics(metrics, clock, "127.0.0.1", 0)
        task = asyncio.get_running_loop().create_task(running.run())
        try:
            await eventually(lambda: metrics.unrestorable == 0)
            page = await asyncio.to_thread(fetch, port)
            assert "penstock_backup_unrestorable_partitions 0\n" in page
            assert metrics.newest_cut_ms is not None and metrics.newest_cut_ms >= metrics.start_ms
            (segment,) = (tmp_path / "archive").rglob("*.segment")
            data = segment.read_bytes()
            segment.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
            await eventually(lambda: metrics.unrestorable == 1)
            assert any("a-0 cannot be restored from the newest cut: " in each for each in reports)
            segment.write_bytes(data)
            await eventually(lambda: metrics.unrestorable == 0)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()
            cluster.close()

    with broker() as source:
        create(source.bootstrap, "a", retention_ms="-1")
        produce(source.bootstrap, "a", [b"1"])
        asyncio.run(main(source.bootstrap))


def status(metrics: BackupMetrics, now_ms: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(metrics.status(now_ms).chunks[0])
    return found


def test_the_status_has_ages_and_says_whether_a_backup_is_late() -> None:
    metrics = BackupMetrics(1_000_000, Schedule(every_ms=60_000, verify_every_ms=3_600_000))
    found = status(metrics, 1_001_000)
    assert (found["newest_cut_age_s"], found["verified_age_s"], found["is_late"]) == (None, None, False)
    assert status(metrics, 1_241_000)["is_late"], "four intervals without a cut"
    metrics.newest_cut_ms, metrics.verified_ms, metrics.unrestorable = 1_200_000, 1_100_000, 2
    found = status(metrics, 1_300_000)
    assert (found["newest_cut_age_s"], found["is_late"]) == (100.0, False)
    assert (found["verified_age_s"], found["unrestorable_partitions"]) == (200.0, 2)
    late = status(metrics, 1_100_000 + 3 * 3_600_000 + 1_000)
    assert (late["is_late"], late["is_unverified"]) == (True, True)


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        return str(response.read().decode())


def test_a_cut_that_fails_is_counted_and_the_next_one_is_tried(tmp_path: Path) -> None:
    """The age of the newest cut is that of the archive, also after a restart. A silent store is no damage."""
    reports: list[str] = []

    class Source:
        attempts = 0

        async def take(self) -> Any:
            self.attempts += 1
            raise (SourceFailed("no broker answers"), OSError("store down"))[self.attempts % 2]

    async def main() -> None:
        clock, source, store = SystemClock(), Source(), store_in(tmp_path / "archive")
        root = await open_archive(store, SystemRng(), 0)
        metrics = BackupMetrics(clock.now_ms(), Schedule(every_ms=1, verify_every_ms=1))
        backup: Any = source
        running = RunningBackup(backup, store, clock, metrics, lambda *_: None, reports.append)
        task = asyncio.get_running_loop().create_task(running.run())
        await eventually(lambda: source.attempts > 3 and metrics.verification_failures > 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert root.id and metrics.failures >= 3
        found = shown(metrics)
        assert "newest_cut_timestamp_seconds" not in found and "unrestorable_partitions" not in found
        assert "no cut was taken: store down" in reports

    asyncio.run(main())


def test_one_cut_that_fails_is_an_error(tmp_path: Path) -> None:
    class Source:
        async def take(self) -> Any:
            raise ArchiveRefused("the cluster has lost records")

    async def main() -> None:
        metrics = BackupMetrics(0, Schedule())
        backup: Any = Source()
        store = store_in(tmp_path / "archive")
        await RunningBackup(backup, store, SystemClock(), metrics, lambda *_: None, print).run()

    with pytest.raises(ArchiveRefused, match="lost records"):
        asyncio.run(main())
