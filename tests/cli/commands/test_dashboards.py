"""`penstock dashboards export`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import Command


def test_export_writes_dashboards_and_rules(penstock: Command, tmp_path: Path) -> None:
    target = tmp_path / "monitoring"
    done = penstock("dashboards", "export", str(target))
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in target.iterdir())
    assert names == [
        "broker-details.json",
        "client-monitoring.json",
        "cluster-overview.json",
        "penstock-alerts.yml",
        "topic-analytics.json",
    ]
    titles = {json.loads(path.read_text())["title"] for path in target.glob("*.json")}
    assert "Penstock: Cluster Overview" in titles
    (tmp_path / "file").touch()
    failed = penstock("dashboards", "export", str(tmp_path / "file"))
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "choose another directory" in failed.stderr
