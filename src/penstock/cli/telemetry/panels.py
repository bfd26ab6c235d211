"""The Grafana panels of the demo: files for Prometheus and Grafana, and Prometheus if it is installed.

A panel has data if Prometheus finds samples for each of its queries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.log_file import open_log
from penstock.observability.dashboards import DASHBOARDS, Panel

if TYPE_CHECKING:
    from penstock.cli.cluster.broker_home import BrokerHome

__all__ = ["Panels", "monitored", "monitoring_address"]

_HOST: Final = "127.0.0.1"
_STARTED: Final = re.compile(r"monitoring_started.*?https?://([^\s\x1b\"]+)")
_INTERVAL: Final = "2s"
_RATE: Final = "20s"
_QUERY_S: Final = 5.0
_STOP_S: Final = 10.0


def monitoring_address(log: str) -> str | None:
    """The address of the monitoring port in a broker's log: that of the last start."""
    found = _STARTED.findall(log)
    return str(found[-1]) if found else None


class Panels:
    """The files in a folder; `port` is that of Prometheus, None if it does not run."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        self.folder = folder
        self.port: int | None = None
        #: the processes that belong to the panels
        self.pids: list[int] = []
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
            "rule_files": ["penstock-alerts.yml"],
            "scrape_configs": [{"job_name": "penstock", "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML, too.
        (folder / "prometheus.yml").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def without_data(self) -> list[str]:
        """The panels that lack data, as DASHBOARD: PANEL."""
        return [
            f"{dashboard.title}: {panel.title}"
            for dashboard in DASHBOARDS
            for panel in dashboard.panels
            if not self._has_data(panel)
        ]

    def _has_data(self, panel: Panel) -> bool:
        return all(query.optional or self._samples(query.expression) for query in panel.queries)

    def _samples(self, expression: str) -> list[Any]:
        from urllib.parse import quote
        from urllib.request import urlopen

        text = quote(expression.replace("$__rate_interval", _RATE))
        try:
            with urlopen(f"http://{_HOST}:{self.port}/api/v1/query?query={text}", timeout=_QUERY_S) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
        except (OSError, ValueError):
            return []
        return found

    def summary(self) -> str:
        """One line on the panels."""
        if self.port is None:
            return (
                f"{self.folder / 'prometheus.yml'} (Prometheus is not installed, so no panel was evaluated)"
            )
        total = sum(len(dashboard.panels) for dashboard in DASHBOARDS)
        lacking = self.without_data()
        missing = f"; without: {', '.join(lacking)}" if lacking else ""
        return f"{total - len(lacking)} of {total} have data, in Prometheus at {_HOST}:{self.port}{missing}"


@contextmanager
def monitored(folder: Path, homes: Sequence[BrokerHome]) -> Iterator[Panels]:
    """Files for Prometheus and Grafana; Prometheus runs until the end if it is installed."""
    from penstock.cli.cluster.listening import free_port
    from penstock.cli.commands.dashboards import write_files

    logs = (home.log_file.read_text(encoding="utf-8", errors="replace") for home in homes)
    panels = Panels(folder, [address for log in logs if (address := monitoring_address(log))])
    write_files(folder)
    binary = shutil.which("prometheus")
    if binary is None:
        yield panels
        return
    port = free_port(_HOST, 0, set())
    command = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=series"]
    with os.fdopen(open_log(folder / "prometheus.log"), "ab") as log_file:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={_HOST}:{port}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
        )
    panels.port = port
    panels.pids.append(process.pid)
    try:
        yield panels
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
