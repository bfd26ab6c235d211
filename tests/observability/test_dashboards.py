"""The dashboards: their queries name metrics that exist, and Grafana's JSON is complete."""

from __future__ import annotations

import json
import re

import pytest

from penstock.observability.dashboards import DASHBOARDS, Dashboard, queries
from penstock.observability.grafana import render
from penstock.observability.metrics import METRICS


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_query_is_about_metrics_and_labels_that_exist(dashboard: Dashboard) -> None:
    for query in queries(dashboard):
        names = re.findall(r"(?:penstock|kafka_analog)_\w+", query.expression)
        assert names, query
        families = [METRICS[name.removesuffix("_bucket")] for name in names]
        known = {label for family in families for label in family.labels} | {"instance", "le", "job"}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= known
        for labels in re.findall(r"by \(([^)]*)\)", query.expression):
            assert {label.strip() for label in labels.split(",")} <= known, query


def test_the_json_has_a_target_for_each_query_and_no_panels_that_overlap() -> None:
    assert [each.title for each in DASHBOARDS] == [
        "Cluster Overview",
        "Broker Details",
        "Topic Analytics",
        "Client Monitoring",
    ]
    for dashboard in DASHBOARDS:
        document = json.loads(json.dumps(render(dashboard)))
        targets = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
        assert len(targets) == len(list(queries(dashboard)))
        cells = [
            (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
            for panel in document["panels"]
            for dx in range(panel["gridPos"]["w"])
            for dy in range(panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
