"""Scrapes a monitoring port."""

from __future__ import annotations

import http.client
import json
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["MONITORED", "Scraped", "get", "health", "scrape", "without_stalls"]

#: configs of a broker with a monitoring port
MONITORED = {"penstock.metrics.listener": "127.0.0.1:0"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def without_stalls(text: str) -> str:
    """The text of `/readyz` without the line on a blocked event loop: a machine may stand still."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("Degraded: the event loop was blocked for"))


def get(port: int, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


class Scraped:
    """The samples of a page by name and labels."""

    def __init__(self, text: str, openmetrics: bool = False) -> None:
        parse = parse_openmetrics if openmetrics else text_string_to_metric_families
        self.families = {family.name: family for family in parse(text)}
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str | int) -> float:
        return float(self.samples[name, tuple(sorted((key, str(value)) for key, value in labels.items()))])

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for each, labels in self.samples if each == name]


def scrape(port: int, path: str = "/metrics", openmetrics: bool = False) -> Scraped:
    status, text, headers = get(port, path, **({"Accept": OPENMETRICS} if openmetrics else {}))
    assert status == 200, text
    assert headers["Content-Type"].startswith("application/openmetrics-text" if openmetrics else "text/plain")
    return Scraped(text, openmetrics)


def health(port: int) -> tuple[int, dict[str, Any]]:
    status, text, _ = get(port, "/health")
    return status, json.loads(text)
