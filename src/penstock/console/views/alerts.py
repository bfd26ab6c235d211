"""Active alerts of the overview: the findings of health, and groups whose lag grows.

Thresholds of health are those of `penstock.observability.health`. An alert is active from the first sample
with its cause to the last one. Health that a user may not see is no alert: `hidden` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from penstock.console.views.knowledge import REFUSED, Gap
from penstock.console.views.overview import health_of
from penstock.console.views.samples import History, as_points
from penstock.observability.health import Finding, Level, Part
from penstock.observability.health_observed import NOT_AUTHORIZED

__all__ = ["Alert", "Alerts", "grows"]

#: the lowest lag of each minute is higher than that of the minute before, for so many minutes
_MINUTES: Final = 5
_MINUTE_S: Final = 60.0
_SEVERITIES: Final = {Level.UNHEALTHY: "critical", Level.UNKNOWN: "critical"}
_PAGES: Final = {Part.TOPICS: "topics", Part.CLIENTS: "security"}


class Alert(NamedTuple):
    """`page` is the fragment of the page with details; `severity` is critical or warning."""

    name: str
    severity: str
    text: str
    page: str
    since_s: float

    def shown(self) -> dict[str, Any]:
        return self._asdict()


class Alerts:
    """The alerts of the last sample, with the time of the first sample that had them."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        self.active: list[Alert] = []
        #: why there may be other alerts, in the last sample; None if there are not
        self.hidden: Gap | None = None

    def update(self, history: History) -> None:
        """Judge the last sample of a history: the critical alerts come first, then those that are new."""
        sample = history.last
        assert sample is not None, "a sample was just added"
        now = sample.time_s
        found: dict[tuple[str, str], Alert] = {}
        self.hidden = None
        for finding in health_of(sample).findings:
            if finding.code == NOT_AUTHORIZED:
                self.hidden = Gap(REFUSED, finding.reason.partition(": ")[2])
                continue
            found[_cause(finding)] = _alert(finding, now)
        for group in _growing(history, now):
            text = f"the lag of group {group} has grown for {_MINUTES} minutes"
            found["group_lag_grows", group] = Alert(
                "group_lag_grows", "warning", text, f"groups/{quote(group, safe='')}", now
            )
        self._since = {key: self._since.get(key, now) for key in found}
        dated = [alert._replace(since_s=self._since[key]) for key, alert in found.items()]
        self.active = sorted(dated, key=lambda each: (each.severity != "critical", -each.since_s))


def _cause(finding: Finding) -> tuple[str, str]:
    """A finding without its numbers, which change. Reasons of one broker begin with its id."""
    broker = finding.reason.partition(":")[0] if finding.part in (Part.BROKER, Part.CLIENTS) else ""
    return finding.code, f"{broker} {finding.subject}"


def _alert(finding: Finding, now: float) -> Alert:
    severity = _SEVERITIES.get(finding.level, "warning")
    return Alert(finding.code, severity, finding.reason, _PAGES.get(finding.part, "cluster"), now)


def _growing(history: History, now: float) -> Iterable[str]:
    sample = history.last
    known: Mapping[str, Any] = {} if sample is None else sample.lags
    return sorted(name for name in known if grows(as_points(history.groups.get(name)), now))


def grows(points: Sequence[tuple[float, float]], now: float) -> bool:
    """Whether the lowest lag of each of the last minutes is higher than that of the minute before.

    Why the lowest: the lag of a group that keeps up grows, too, between two of its commits.
    """
    lowest: list[float | None] = [None] * (_MINUTES + 1)
    for time_s, value in points:
        minute = int((now - time_s) // _MINUTE_S)
        if 0 <= minute <= _MINUTES:
            known = lowest[minute]
            lowest[minute] = value if known is None else min(known, value)
    # The newest minute is the first.
    pairs = pairwise(lowest)
    return all(newer is not None and older is not None and newer > older for newer, older in pairs)
