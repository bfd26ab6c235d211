"""Variables and panels of the dashboards: cluster, brokers, topics and groups choose what queries show."""

from __future__ import annotations

import re

import pytest

from penstock.observability.dashboards import DASHBOARDS, Dashboard, Query
from penstock.observability.grafana import render, selected, variables
from penstock.observability.metrics import METRICS

_TITLES = {dashboard.title: dashboard for dashboard in DASHBOARDS}


def test_each_metric_gets_the_variables_of_its_labels() -> None:
    rate = Query('sum by (topic) (rate(penstock_topic_bytes_in_total{topic!="a"}[5m])) / penstock_leaders')
    assert selected(rate) == (
        'sum by (topic) (rate(penstock_topic_bytes_in_total{topic!="a",instance=~"$instance",topic=~"$topic"}'
        '[5m])) / penstock_leaders{instance=~"$instance"}'
    )
    lag = selected(Query("max by (group) (penstock_group_lag_records)"))
    assert lag == (
        'max by (group) (penstock_group_lag_records{instance=~"$instance",topic=~"$topic",group=~"$group"})'
    )
    buckets = selected(Query("rate(penstock_fsync_seconds_bucket[5m])"))
    assert buckets == 'rate(penstock_fsync_seconds_bucket{instance=~"$instance"}[5m])'


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_target_is_limited_to_the_brokers_of_the_cluster(dashboard: Dashboard) -> None:
    for panel in render(dashboard)["panels"]:
        for target in panel["targets"]:
            selectors = re.findall(r"(?:penstock|kafka_analog)_\w+(\{[^}]*\})?", target["expr"])
            assert selectors and all('instance=~"$instance"' in each for each in selectors)


def test_the_variables_depend_on_each_other_from_the_cluster_on() -> None:
    assert variables(_TITLES["Topic Analytics"]) == ["cluster", "instance", "topic", "group"]
    assert variables(_TITLES["Broker Details"]) == ["cluster", "instance"]
    shown = {each["name"]: each for each in render(_TITLES["Topic Analytics"])["templating"]["list"]}
    assert list(shown) == ["datasource", "cluster", "instance", "topic", "group"]
    assert shown["cluster"]["query"]["query"] == "label_values(penstock_cluster_info, cluster_id)"
    for name, needed in (("instance", "$cluster"), ("topic", "$instance"), ("group", "$instance")):
        query = shown[name]["query"]["query"]
        assert needed in query and re.findall(r"penstock_\w+", query)[0] in METRICS
    assert shown["topic"]["allValue"] == ".*", "a list of thousands of topics would not fit into a query"


def test_the_overview_begins_with_stat_panels() -> None:
    panels = render(_TITLES["Cluster Overview"])["panels"]
    kinds = [panel["type"] for panel in panels]
    assert kinds.index("timeseries") == kinds.count("stat") == 12
    bad = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]
        for panel in panels
        if panel["type"] == "stat"
    }
    assert bad["Partitions without a leader"] == {"color": "red", "value": 1}
    assert bad["Topics"] == {"color": "text", "value": None}
