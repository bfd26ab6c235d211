"""The panels of the demo: the files, and the evaluation of their queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.telemetry.panels import Panels, monitoring_address
from penstock.observability.dashboards import DASHBOARDS

LINE = "2026-11-17T03:00:00Z [info] monitoring_started address=http://127.0.0.1:%s component=monitoring\n"


def test_the_address_is_that_of_the_last_start() -> None:
    assert monitoring_address("") is None
    assert monitoring_address(LINE % 1 + "other\n" + LINE % 29092) == "127.0.0.1:29092"
    assert monitoring_address('{"event": "monitoring_started", "address": "https://h:5"}') == "h:5"


def test_panels_without_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = Panels(tmp_path / "monitoring", ["127.0.0.1:29092"])
    config = json.loads((tmp_path / "monitoring/prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:29092"]}]
    assert "not installed" in panels.summary()
    panels.port = 1
    first = DASHBOARDS[0].panels[0]
    lacking = {query.expression for query in first.queries}
    monkeypatch.setattr(panels, "_samples", lambda expression: [] if expression in lacking else [1])
    assert panels.without_data() == [f"{DASHBOARDS[0].title}: {first.title}"]
    total = sum(len(dashboard.panels) for dashboard in DASHBOARDS)
    assert panels.summary().startswith(f"{total - 1} of {total} have data")
