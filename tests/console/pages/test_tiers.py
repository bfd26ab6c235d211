"""Pages of a tiered topic, and of a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.backup.running import BackupMetrics, Schedule
from penstock.broker.base.system_ports import SystemClock
from penstock.console.web.app import ConsoleSettings
from penstock.console.web.backup_routes import BackupStatus
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from tests.broker.app.tiered_topics import TIERED, tiered
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic
from tests.console.backups import backup
from tests.console.browser import Browser
from tests.console.serving import serving

pytestmark = pytest.mark.process
pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")


def test_pages_show_the_archive_and_the_backup(browser: Browser, tmp_path: Path) -> None:
    metrics = BackupMetrics(SystemClock().now_ms(), Schedule(every_ms=60_000, verify_every_ms=60_000))
    metrics.newest_cut_ms, metrics.unrestorable = metrics.start_ms - 7_200_000, 2
    with broker(config=tiered(tmp_path)) as running, backup(metrics) as address:
        with RawClient(running.bootstrap) as client:
            topic = create_topic(client, configs={**TIERED, "local.retention.bytes": "0"})
            for n in range(20):
                append(client, topic, b"%d" % n * 60)
        settings = ConsoleSettings(
            bootstrap=parse_bootstrap(running.bootstrap), timeout_s=10.0, backup=BackupStatus(address)
        )
        with serving(settings) as url:
            page = browser.page()
            page.open(url)
            page.until("document.body.innerText.includes('2 partitions cannot be restored')")
            shown = page.text("main")
            assert "2 h ago, one each 60 s" in shown and "none yet" in shown
            page.open(f"{url}/#/topics/{topic.name}/partitions")
            page.until("document.body.innerText.includes('Archived to')")
            assert "On disk from" in page.text("main")
            page.close()
