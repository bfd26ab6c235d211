"""Kubernetes' API of external metrics: paths, selectors and quantities."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import pytest

from penstock.cli.container.external_metrics import PATH, Answer, Measured, answer, quantity, selector
from penstock.cli.container.loads import LAG, LOAD

NOW = "2026-11-19T11:00:00Z"
MEASURED = {
    LOAD: [Measured({"broker": "0"}, 0.63), Measured({"broker": "1"}, 0.5)],
    LAG: [
        Measured({"group": "billing", "topic": "orders"}, 1200.0),
        Measured({"group": "audit", "topic": "orders"}, 3.0),
    ],
}


def asked(path: str, labels: str = "") -> Answer:
    query = f"labelSelector={quote(labels)}" if labels else ""
    return answer(path, query, "queue", MEASURED, NOW)


def test_the_load_has_a_value_for_each_broker() -> None:
    found = asked(f"{PATH}/namespaces/queue/{LOAD}")
    assert found.status == HTTPStatus.OK
    assert found.body["kind"] == "ExternalMetricValueList"
    assert found.body["items"] == [
        {"metricName": LOAD, "metricLabels": {"broker": "0"}, "timestamp": NOW, "value": "630m"},
        {"metricName": LOAD, "metricLabels": {"broker": "1"}, "timestamp": NOW, "value": "500m"},
    ]


def test_a_selector_chooses_the_lag_of_a_group() -> None:
    (item,) = asked(f"{PATH}/namespaces/queue/{LAG}", "group=billing").body["items"]
    assert (item["value"], item["metricLabels"]["topic"]) == ("1200", "orders")


def test_discovery_names_every_metric() -> None:
    found = asked(PATH).body
    assert found["groupVersion"] == "external.metrics.k8s.io/v1beta1"
    assert [each["name"] for each in found["resources"]] == [LOAD, LAG]
    assert asked("/apis/external.metrics.k8s.io").body["kind"] == "APIGroup"
    assert asked("/apis").body["groups"][0]["name"] == "external.metrics.k8s.io"


@pytest.mark.parametrize(
    "path", ["/", "/metrics", f"{PATH}/namespaces/queue", f"{PATH}/namespaces/queue/{LOAD}/more"]
)
def test_other_paths_are_not_found(path: str) -> None:
    found = asked(path)
    assert (found.status, found.body["reason"]) == (HTTPStatus.NOT_FOUND, "NotFound")


def test_another_namespace_learns_nothing() -> None:
    found = asked(f"{PATH}/namespaces/other/{LOAD}")
    assert found.status == HTTPStatus.NOT_FOUND
    assert f"not {LOAD} of other" in found.body["message"]


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    found = asked(f"{PATH}/namespaces/queue/{LAG}", "group=(")
    assert found.status == HTTPStatus.BAD_REQUEST
    assert "group=(" in found.body["message"]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", {"a", "b", "none"}),
        ("group=a", {"a"}),
        ("group==a", {"a"}),
        ("group!=a", {"b", "none"}),
        ("group in (a, b)", {"a", "b"}),
        ("group notin (a)", {"b", "none"}),
        ("group", {"a", "b"}),
        ("!group", {"none"}),
        ("group in (a,b),group!=b", {"a"}),
    ],
)
def test_selectors_are_those_of_kubernetes(text: str, chosen: set[str]) -> None:
    labels = {"a": {"group": "a"}, "b": {"group": "b"}, "none": {}}
    matches = selector(text)
    assert {name for name, each in labels.items() if matches(each)} == chosen


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (12.0, "12"), (0.63, "630m"), (1.2345, "1234m"), (1e12, "1000000000000")]
)
def test_quantities_are_whole_thousandths(value: float, text: str) -> None:
    assert quantity(value) == text
