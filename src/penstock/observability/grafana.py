"""Renders dashboards as Grafana imports them: panels, and variables that every query depends on.

The variables are the data source, the cluster, its brokers (`instance`), topics and groups. `selected` puts
them into a query: each metric gets a selector for each of its labels that has a variable. The id of the
cluster is no label of the metrics. It chooses the brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.observability.dashboards import Dashboard, Panel, Query, queries
from penstock.observability.metrics import METRICS

__all__ = ["render", "selected", "variables"]

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_WIDTH: Final = 12
_HEIGHT: Final = 8
_STAT_WIDTH: Final = 4
_STAT_HEIGHT: Final = 4
_SCHEMA: Final = 39
#: variables by the label that they select: the query of their values
_VARIABLES: Final[Mapping[str, str]] = {
    "instance": 'label_values(penstock_cluster_info{cluster_id=~"$cluster"}, instance)',
    "topic": 'label_values(penstock_topic_size_bytes{instance=~"$instance"}, topic)',
    "group": 'label_values(penstock_group_members{instance=~"$instance"}, group)',
}
_METRIC: Final = re.compile(r"((?:penstock|kafka_analog)_\w+)(?:\{([^}]*)\})?")
_SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")


def selected(query: Query) -> str:
    """The expression of a query with the variables of the dashboard."""

    def with_variables(found: re.Match[str]) -> str:
        given = [found[2]] if found[2] else []
        return f"{found[1]}{{{','.join([*given, *_selectors(found[1])])}}}"

    return _METRIC.sub(with_variables, query.expression)


def _selectors(name: str) -> Iterator[str]:
    family = METRICS[name if name in METRICS else _SUFFIX.sub("", name)]
    for label in _VARIABLES:
        if label == "instance" or label in family.labels:
            yield f'{label}=~"${label}"'


def variables(dashboard: Dashboard) -> list[str]:
    """The names of the variables that the queries of a dashboard use, in the order of their dependence."""
    used = "".join(selected(query) for query in queries(dashboard))
    return ["cluster", *(name for name in _VARIABLES if f'"${name}"' in used)]


def render(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "uid": f"penstock-{dashboard.name}",
        "title": f"Penstock: {dashboard.title}",
        "tags": ["penstock"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *map(_variable, variables(dashboard))]},
        "panels": list(_panels(dashboard)),
    }


def _variable(name: str) -> dict[str, Any]:
    query = _VARIABLES.get(name, "label_values(penstock_cluster_info, cluster_id)")
    shown = {
        "name": name,
        "label": "Broker" if name == "instance" else name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": name != "cluster",
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    if name in ("topic", "group"):
        # Not a list of all names, which may be thousands.
        shown["allValue"] = ".*"
    return shown


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """The panels from left to right and from top to bottom; stat panels first, in rows of their own."""
    x = y = 0
    height = _STAT_HEIGHT
    for number, panel in enumerate(sorted(dashboard.panels, key=lambda each: not each.is_stat), 1):
        width, wanted = (_STAT_WIDTH, _STAT_HEIGHT) if panel.is_stat else (_WIDTH, _HEIGHT)
        if x + width > _COLUMNS or (x and wanted != height):
            x, y = 0, y + height
        height = wanted
        yield _panel(number, panel, {"h": height, "w": width, "x": x, "y": y})
        x += width


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi"},
    }
    if panel.is_stat:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        steps: list[dict[str, Any]] = [{"color": "text", "value": None}]
        if panel.bad_from is not None:
            steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + nth),
                "datasource": _SOURCE,
                "expr": selected(query),
                "legendFormat": query.legend,
                "instant": panel.is_stat and panel.bad_from is not None,
            }
            for nth, query in enumerate(panel.queries)
        ],
    }
