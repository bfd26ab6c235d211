"""External metrics out of the metrics pages of brokers. Without I/O.

The load of a broker is the part of a core that it used between two pages: a broker uses one core at most. The
lag of groups is taken as it is; a group has one coordinator, which reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.cli.container.external_metrics import Measured

__all__ = ["LAG", "LOAD", "SHARE_LAG", "Taken", "measure", "taken"]

LOAD: Final = "penstock_broker_load"
LAG: Final = "penstock_group_lag_records"
SHARE_LAG: Final = "penstock_share_group_lag_records"
_CPU: Final = "penstock_cpu_seconds_total"
_START: Final = "penstock_start_time_seconds"
_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class Taken(NamedTuple):
    """What one page of a broker says, and when it was read, by a clock that never goes back."""

    at_s: float
    cpu_s: float
    started_s: float
    lags: Mapping[str, tuple[Measured, ...]]


def taken(page: str, at_s: float) -> Taken:
    """Read a page in the text format of Prometheus."""
    cpu_s = started_s = 0.0
    lags: dict[str, list[Measured]] = {LAG: [], SHARE_LAG: []}
    for name, labels, value in _samples(page):
        if name == _CPU:
            cpu_s = value
        elif name == _START:
            started_s = value
        elif name in lags:
            lags[name].append(Measured(labels, value))
    return Taken(at_s, cpu_s, started_s, {name: tuple(each) for name, each in lags.items()})


def measure(before: Mapping[int, Taken], now: Mapping[int, Taken]) -> dict[str, list[Measured]]:
    """The values of all metrics; both have the last pages of brokers, by their ids.

    A broker that has started between the pages has no load yet.
    """
    found: dict[str, list[Measured]] = {LOAD: [], LAG: [], SHARE_LAG: []}
    for broker, page in sorted(now.items()):
        earlier = before.get(broker)
        if earlier is not None and earlier.started_s == page.started_s and page.at_s > earlier.at_s:
            load = max(0.0, page.cpu_s - earlier.cpu_s) / (page.at_s - earlier.at_s)
            found[LOAD].append(Measured({"broker": str(broker)}, load))
        for name, values in page.lags.items():
            found[name] += values
    return found


def _samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in page.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in (_CPU, _START, LAG, SHARE_LAG):
            continue
        labels = {
            each["name"]: _ESCAPE.sub(_unescaped, each["value"])
            for each in _LABEL.finditer(match["labels"] or "")
        }
        yield match["name"], labels, float(match["value"])


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
