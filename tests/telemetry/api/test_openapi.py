"""The document that describes the API is valid, complete, and true."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

FILTERS = ("hostname", "workload", "pod")
PARAMETERS = {
    "/api/v1/gpus": {"start_time", "end_time", "limit", "cursor", *FILTERS},
    "/api/v1/gpus/{uuid}/telemetry": {
        "uuid",
        "start_time",
        "end_time",
        "metric",
        *FILTERS,
        "resolution",
        "limit",
        "cursor",
    },
    "/api/v1/fleet/now": {"state", "limit", *FILTERS},
    "/api/v1/fleet/utilization": {"start_time", "end_time", "by", "limit", *FILTERS},
    "/api/v1/fleet/idle": {"start_time", "end_time", "by", "limit", *FILTERS},
    "/api/v1/fleet/energy": {"start_time", "end_time", "by", "limit", *FILTERS},
    "/api/v1/fleet/hosts": {"hostname", "rack", "limit"},
    "/api/v1/fleet/health": {"start_time", "end_time", "status", "limit", *FILTERS},
    "/api/v1/alerts": {
        "start_time",
        "end_time",
        "state",
        "rule",
        "severity",
        "subject",
        *FILTERS,
        "limit",
        "cursor",
    },
    "/healthz": set(),
    "/readyz": set(),
    "/metrics": set(),
}


@pytest.fixture(scope="module")
def document(client: TestClient) -> Any:
    return client.get("/openapi.json").json()


def test_the_document_is_valid(document: Any) -> None:
    validate(document)


def test_every_route_and_parameter_is_described(document: Any) -> None:
    found = {}
    for path, operations in document["paths"].items():
        (operation,) = operations.values()
        assert operation["summary"]
        assert operation["description"]
        parameters = operation.get("parameters", [])
        assert all(parameter["description"] for parameter in parameters)
        found[path] = {parameter["name"] for parameter in parameters}
    assert found == PARAMETERS


def test_problems_have_their_type(document: Any) -> None:
    for operations in document["paths"].values():
        for status, response in operations["get"]["responses"].items():
            if int(status) >= 400:
                (schema,) = response["content"].items()
                assert schema == (
                    "application/problem+json",
                    {"schema": {"$ref": "#/components/schemas/Problem"}},
                )


@pytest.mark.parametrize("path", [path for path in PARAMETERS if path != "/metrics"])
def test_responses_match_the_document(client: TestClient, document: Any, path: str) -> None:
    response = document["paths"][path]["get"]["responses"]["200"]
    schema = response["content"]["application/json"]["schema"]
    whole = {**schema, "components": document["components"]}
    Draft202012Validator(whole).validate(client.get(path.format(uuid="GPU-a0")).json())
    with pytest.raises(Exception, match="required"):
        Draft202012Validator(whole).validate({})


def test_problems_match_the_document(client: TestClient, document: Any) -> None:
    schema = {"$ref": "#/components/schemas/Problem", "components": document["components"]}
    Draft202012Validator(schema).validate(client.get("/api/v1/gpus?limit=0").json())
    Draft202012Validator(schema).validate(client.get("/nowhere").json())


def test_names_are_those_of_the_code(document: Any) -> None:
    parameters = document["paths"]["/api/v1/fleet/energy"]["get"]["parameters"]
    (by,) = [parameter["schema"] for parameter in parameters if parameter["name"] == "by"]
    assert by["enum"] == ["gpu", "host", "model", "workload", "job", "pod", "namespace", "rack"]
    assert by["default"] == "host"
