"""Routes of the schema registry: pages, changes, rights, and registries that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.registry.settings import registry_settings
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.console.logins import tls_login
from tests.console.registry_server import Registry, registry_server

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
PRICE = {"name": "price", "type": "int"}


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


@contextmanager
def console_with(bootstrap: str, url: str | None, **pairs: str) -> Iterator[TestClient]:
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(bootstrap),
        hosts=["testserver"],
        timeout_s=20.0,
        registry=None if url is None else registry_settings(pairs, url),
    )
    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
        yield client


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as running:
        yield running


@pytest.fixture
def client(bootstrap: str, registry: Registry) -> Iterator[TestClient]:
    with console_with(bootstrap, registry.url) as found:
        yield found


def draft(subject: str, *fields: Any, kind: str = "AVRO") -> dict[str, Any]:
    return {"subject": subject, "draft": {"schema": json.dumps(record(*fields)), "kind": kind}}


def test_a_console_without_a_registry_reports_it(console: TestClient) -> None:
    assert console.get("/api/schemas").json() == {"configured": False}
    assert console.get("/api/session").json()["registry"] is False


def test_subjects_with_their_topics(client: TestClient, registry: Registry, topic: str) -> None:
    registry.add(f"{topic}-value", record(ID))
    registry.add("com.example.Order", record(ID))
    registry.level = "FULL"
    found = client.get("/api/schemas").json()
    assert (found["configured"], found["all"], found["may_change"]) == (True, True, True)
    assert found["level"] == {"name": "FULL", "own": False, "gap": None}
    rows = {row["name"]: (row["topic"], row["part"], row["deleted"]) for row in found["subjects"]}
    assert rows == {f"{topic}-value": (topic, "value", False), "com.example.Order": (None, None, False)}


def test_one_subject_with_versions_and_a_difference(
    client: TestClient, registry: Registry, topic: str
) -> None:
    subject = f"{topic}-value"
    for fields in ([ID], [ID, NOTE]):
        registry.add(subject, record(*fields))
    found = client.get("/api/schemas/subject", params={"name": subject}).json()
    assert [each["version"] for each in found["versions"]] == [1, 2]
    assert (found["chosen"]["version"], found["topic"], found["part"]) == (2, topic, "value")
    assert '"name": "note"' in found["chosen"]["text"]
    old = client.get("/api/schemas/subject", params={"name": subject, "version": "1"}).json()
    assert '"name": "note"' not in old["chosen"]["text"]
    query = {"name": subject, "from": "1", "to": "2"}
    lines = client.get("/api/schemas/difference", params=query).json()["lines"]
    assert ["+", '      "name": "note",'] in lines
    assert client.get("/api/schemas/subject", params={"name": "nowhere"}).status_code == 404
    assert client.get("/api/schemas/subject", params={"name": subject, "version": "x"}).status_code == 400


def test_a_schema_by_its_number_and_the_schemas_of_a_topic(
    client: TestClient, registry: Registry, topic: str
) -> None:
    number = registry.add(f"{topic}-value", record(ID))
    found = client.get(f"/api/schemas/ids/{number}").json()
    assert (found["id"], found["uses"]) == (number, [{"subject": f"{topic}-value", "version": 1}])
    assert client.get("/api/schemas/ids/99").status_code == 404
    assert client.get("/api/schemas/ids/99999999999999999999").status_code == 400
    key, value = client.get(f"/api/topics/{topic}/schemas").json()["schemas"]
    assert (key["subject"], key["version"], key["gap"]) == (f"{topic}-key", None, None)
    assert (value["version"], value["id"], value["type"]) == (1, number, "AVRO")
    assert client.get("/api/topics/nowhere/schemas").status_code == 404


def test_a_draft_is_checked_and_registered(client: TestClient, registry: Registry) -> None:
    first = client.post("/api/schemas/check", json=draft("orders-value", ID)).json()
    assert (first["compatible"], first["known_version"]) == (None, None)
    assert client.post("/api/schemas/register", json=draft("orders-value", ID)).json() == {
        "id": 1,
        "version": 1,
    }
    checked = client.post("/api/schemas/check", json=draft("orders-value", ID, PRICE)).json()
    assert (checked["compatible"], "price" in checked["messages"][0]) == (False, True)
    assert checked["level"]["name"] == "BACKWARD"
    refused = client.post("/api/schemas/register", json=draft("orders-value", ID, PRICE))
    assert (refused.status_code, "incompatible" in refused.json()["message"]) == (409, True)
    accepted = client.post("/api/schemas/register", json=draft("orders-value", ID, NOTE))
    assert accepted.json() == {"id": 2, "version": 2}
    proto = {"schema": 'syntax = "proto3"; message A { int32 b = 1; }', "kind": "PROTOBUF"}
    body = {"subject": "payments-value", "draft": proto}
    assert client.post("/api/schemas/register", json=body).json()["version"] == 1
    assert registry.schemas[3]["schemaType"] == "PROTOBUF"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"subject": " ", "draft": {"schema": "{}"}}, "no name"),
        ({"subject": "s", "draft": {"schema": " "}}, "empty"),
        ({"subject": "s", "draft": {"schema": "{}", "kind": "XML"}}, "'XML' is not one of AVRO"),
    ],
)
def test_a_draft_that_is_none_is_refused(client: TestClient, body: dict[str, Any], reason: str) -> None:
    answer = client.post("/api/schemas/register", json=body)
    assert (answer.status_code, reason in answer.json()["message"]) == (400, True)


def test_levels_are_changed_and_returned(client: TestClient, registry: Registry) -> None:
    registry.add("orders-value", record(ID))
    own = {"subject": "orders-value", "level": "NONE"}
    assert client.post("/api/schemas/level", json=own).json()["level"]["own"] is True
    assert (registry.levels, registry.level) == ({"orders-value": "NONE"}, "BACKWARD")
    assert client.post("/api/schemas/level", json={"subject": "orders-value"}).status_code == 200
    assert client.post("/api/schemas/level", json={"level": "FULL"}).status_code == 200
    assert (registry.levels, registry.level) == ({}, "FULL")
    assert client.post("/api/schemas/level", json={}).status_code == 400
    assert client.post("/api/schemas/level", json={"level": "MOSTLY"}).status_code == 400


def test_only_deleted_subjects_are_removed_permanently(client: TestClient, registry: Registry) -> None:
    for fields in ([ID], [ID, NOTE]):
        registry.add("orders-value", record(*fields))
    version = {"name": "orders-value", "version": "1"}
    refused = client.delete("/api/schemas/subject", params={**version, "permanent": "1"})
    assert (refused.status_code, "delete it first" in refused.json()["message"]) == (400, True)
    assert client.delete("/api/schemas/subject", params=version).status_code == 200
    assert client.delete("/api/schemas/subject", params={**version, "permanent": "1"}).status_code == 200
    assert list(registry.subjects["orders-value"]) == [2]
    whole = {"name": "orders-value"}
    assert client.delete("/api/schemas/subject", params={**whole, "permanent": "1"}).status_code == 400
    assert client.delete("/api/schemas/subject", params=whole).status_code == 200
    (row,) = client.get("/api/schemas").json()["subjects"]
    assert row["deleted"]
    assert client.delete("/api/schemas/subject", params={**whole, "permanent": "1"}).status_code == 200
    assert registry.subjects == {}


def test_a_registry_for_reading_only_is_not_changed(bootstrap: str, registry: Registry) -> None:
    registry.add("orders-value", record(ID))
    with console_with(bootstrap, registry.url, **{"read.only": "true"}) as client:
        assert client.get("/api/schemas").json()["may_change"] is False
        answers = [
            client.post("/api/schemas/register", json=draft("orders-value", ID, NOTE)),
            client.post("/api/schemas/level", json={"level": "NONE"}),
            client.delete("/api/schemas/subject", params={"name": "orders-value"}),
        ]
        assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert not [line for line in registry.requested if not line.startswith("GET")]


def test_failures_of_a_registry_are_distinguished(bootstrap: str, registry: Registry) -> None:
    registry.user = "ada:s3cret"
    with console_with(bootstrap, registry.url, **{"basic.auth.user.info": "ada:wr0ng"}) as client:
        refused = client.get("/api/schemas")
        assert (refused.status_code, "refuses the credentials" in refused.json()["message"]) == (403, True)
        assert "wr0ng" not in refused.text
    with console_with(bootstrap, "http://127.0.0.1:1") as client:
        gone = client.get("/api/schemas")
        assert (gone.status_code, "does not answer" in gone.json()["message"]) == (503, True)


def test_brokers_that_are_gone_do_not_hide_the_registry(registry: Registry) -> None:
    registry.add("orders-value", record(ID))
    with console_with("127.0.0.1:1", registry.url) as client:
        (row,) = client.get("/api/schemas").json()["subjects"]
        assert (row["name"], row["topic"]) == ("orders-value", None)


# -- users with rights of their own


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    pytest.importorskip("cryptography")
    acls = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with broker(secure=True, config=acls) as running:
        yield running


SEES = {
    "principal": "User:reader",
    "host": "*",
    "operation": "describe",
    "permission": "allow",
    "resource": "topic",
    "name": "seen",
    "pattern": "literal",
}


def log_in(client: TestClient, user: str, password: str) -> None:
    assert client.post("/api/login", json={"user": user, "password": password}).status_code == 200


def test_rights_of_the_brokers_decide(secured: BrokerThread, registry: Registry) -> None:
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(secured.bootstrap),
        login=tls_login(secured),
        hosts=["testserver"],
        timeout_s=30.0,
        registry=registry_settings({}, registry.url),
    )
    for subject in ("seen-value", "hidden-value", "com.example.Order"):
        registry.add(subject, record({"name": subject.partition("-")[0].replace(".", "_"), "type": "int"}))
    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
        assert client.get("/api/schemas").status_code == 401
        log_in(client, "admin", secured.client_config["sasl.password"])
        for name in ("seen", "hidden"):
            assert client.post("/api/topics", json={"name": name, "replicas": 1}).status_code == 200
        user = {"user": "reader", "password": "reader-pw-1", "mechanism": "SCRAM-SHA-512"}
        assert client.post("/api/users", json=user).status_code == 200
        assert client.post("/api/acls", json=SEES).status_code == 200
        everything = client.get("/api/schemas").json()
        assert (len(everything["subjects"]), everything["may_change"]) == (3, True)
        client.post("/api/logout")
        log_in(client, "reader", "reader-pw-1")
        own = client.get("/api/schemas").json()
        assert [row["name"] for row in own["subjects"]] == ["seen-value"]
        assert (own["all"], own["may_change"]) == (False, False)
        assert client.get("/api/schemas/subject", params={"name": "seen-value"}).status_code == 200
        for name in ("hidden-value", "com.example.Order"):
            assert client.get("/api/schemas/subject", params={"name": name}).status_code == 403
        assert [client.get(f"/api/schemas/ids/{n}").status_code for n in (1, 2, 3)] == [200, 403, 403]
        refused = client.post("/api/schemas/register", json=draft("seen-value", ID))
        assert (refused.status_code, "needs Alter on the cluster" in refused.json()["message"]) == (403, True)
    assert not [line for line in registry.requested if not line.startswith("GET")]
