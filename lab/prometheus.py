"""Prometheus: `promtool` and the server, which Debian has in one package.

What is installed is used. As root with CI=true, the package is downloaded and unpacked into a temporary
directory, without installing a service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.server import HOST, free_port

__all__ = ["Prometheus", "prometheus_path"]

_DOWNLOAD_S = 120
_QUERY_S = 10
_STOP_S = 20


@cache
def _unpacked() -> Path | None:
    if os.environ.get("CI") != "true" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    # `apt-get` and `dpkg` report their own errors; without the package there is no Prometheus.
    home = Path(tempfile.gettempdir()) / f"penstock-prometheus-{os.getpid()}"
    home.mkdir(exist_ok=True)
    try:
        for command in (["apt-get", "-q", "download", "prometheus"], ["sh", "-c", "dpkg -x *.deb ."]):
            subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=_DOWNLOAD_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return home / "usr/bin"


def prometheus_path(name: str) -> str | None:
    """The path of `promtool` or `prometheus`; None if there is none."""
    found = shutil.which(name)
    if found is not None:
        return found
    unpacked = _unpacked()
    return None if unpacked is None or not (unpacked / name).exists() else str(unpacked / name)


class Prometheus:
    """A server that scrapes every second. Use it in a `with`: leaving it ends the process."""

    def __init__(
        self,
        binary: str,
        home: Path,
        targets: Sequence[str],
        rules: Mapping[str, Any] | None = None,
        others: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`targets` are brokers; `others` are the targets of other jobs, by their names."""
        self._binary = binary
        self._home = home
        self.port = free_port()
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(each)}]}
                for job, each in {"penstock": targets, **(others or {})}.items()
            ],
        }
        if rules is not None:
            config["rule_files"] = ["rules.yml"]
            (home / "rules.yml").write_text(json.dumps(rules), encoding="utf-8")
        (home / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            self._binary,
            "--config.file=prometheus.yml",
            f"--storage.tsdb.path={self._home / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
        ]
        with (self._home / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._home, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_STOP_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get(f"query?query={urllib.parse.quote(expression)}")["result"]
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return set(self.firing_values())

    def firing_values(self) -> dict[str, list[float]]:
        """The alerts that fire, each with the values of its expression."""
        found: dict[str, list[float]] = {}
        for alert in self._get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(float(alert["value"]))
        return found

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/api/v1/{path}", timeout=_QUERY_S) as response:
            found: dict[str, Any] = json.load(response)
        assert found["status"] == "success", found
        data: dict[str, Any] = found["data"]
        return data
