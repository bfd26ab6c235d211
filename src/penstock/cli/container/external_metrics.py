"""Kubernetes' API of external metrics: what is answered to which path. Without I/O.

An autoscaler asks for one metric in the namespace of what it scales, with a selector of labels, and adds the
values that it gets. Values are whole thousandths, as Kubernetes writes quantities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

__all__ = ["PATH", "Answer", "Measured", "answer", "quantity", "selector"]

_GROUP: Final = "external.metrics.k8s.io"
_VERSION: Final = "v1beta1"
_KIND: Final = "ExternalMetricValueList"
#: of the API in the API server
PATH: Final = f"/apis/{_GROUP}/{_VERSION}"
_METRIC: Final = re.compile(rf"{re.escape(PATH)}/namespaces/(?P<namespace>[^/]+)/(?P<metric>[^/]+)")
_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_IN: Final = re.compile(rf"\s*(?P<key>{_NAME})\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)\s*")
_EQUAL: Final = re.compile(rf"\s*(?P<key>{_NAME})\s*(?P<how>==|=|!=)\s*(?P<value>[^,()=!]*?)\s*")
_EXISTS: Final = re.compile(rf"\s*(?P<not>!?)\s*(?P<key>{_NAME})\s*")
#: between requirements, but not in a list of values
_COMMA: Final = re.compile(r",(?![^(]*\))")

Labels = Mapping[str, str]
Matches = Callable[[Labels], bool]


class Measured(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float


class Answer(NamedTuple):
    status: HTTPStatus
    body: dict[str, Any]


def answer(
    path: str, query: str, namespace: str, measured: Mapping[str, Sequence[Measured]], now: str
) -> Answer:
    """The answer to a GET; `measured` has the values of each metric, `now` is when they were taken."""
    if path.rstrip("/") == PATH:
        return Answer(HTTPStatus.OK, _resources(measured))
    if path.rstrip("/") in ("/apis", f"/apis/{_GROUP}"):
        group = _api_group()
        listed = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        return Answer(HTTPStatus.OK, listed if path.rstrip("/") == "/apis" else group)
    match = _METRIC.fullmatch(path)
    if match is None:
        return _refused(HTTPStatus.NOT_FOUND, "NotFound", f"there is nothing at {path}")
    name = unquote(match["metric"])
    if match["namespace"] != namespace or name not in measured:
        known = ", ".join(sorted(measured))
        reason = f"the namespace {namespace} has the metrics {known}; not {name} of {match['namespace']}"
        return _refused(HTTPStatus.NOT_FOUND, "NotFound", reason)
    try:
        matches = selector(parse_qs(query).get("labelSelector", [""])[0])
    except ValueError as error:
        return _refused(HTTPStatus.BAD_REQUEST, "BadRequest", str(error))
    items = [
        {
            "metricName": name,
            "metricLabels": dict(each.labels),
            "timestamp": now,
            "value": quantity(each.value),
        }
        for each in measured[name]
        if matches(each.labels)
    ]
    return Answer(
        HTTPStatus.OK,
        {"kind": _KIND, "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": {}, "items": items},
    )


def quantity(value: float) -> str:
    """A value as a quantity of Kubernetes, such as `12` or `630m`."""
    thousandths = round(value * 1000)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def selector(text: str) -> Matches:
    """Whether labels match a selector of Kubernetes, such as `group=billing,topic in (a,b)`."""
    wanted = [_requirement(part) for part in _COMMA.split(text) if part.strip()]
    return lambda labels: all(matches(labels) for matches in wanted)


def _requirement(text: str) -> Matches:
    if match := _IN.fullmatch(text):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.fullmatch(text):
        key, value = match["key"], match["value"]
        if match["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.fullmatch(text):
        key, present = match["key"], not match["not"]
        return lambda labels: (key in labels) is present
    raise ValueError(f"the selector {text!r} is not one of labels, such as group=billing")


def _resources(measured: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": _KIND, "verbs": ["get"]}
        for name in sorted(measured)
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{_GROUP}/{_VERSION}",
        "resources": resources,
    }


def _api_group() -> dict[str, Any]:
    version = {"groupVersion": f"{_GROUP}/{_VERSION}", "version": _VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": _GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def _refused(status: HTTPStatus, reason: str, message: str) -> Answer:
    return Answer(
        status,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": int(status),
        },
    )
