"""Messages with schemas of a real registry, Apicurio, and changes of it: run by `make test-console`."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from starlette.testclient import TestClient

from lab.apicurio import apicurio_registry
from penstock.client import Registry, Serializer
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.registry.settings import registry_settings
from penstock.testing import broker
from tests.console.browser import Page, chromium
from tests.console.pages.conftest import produce
from tests.console.serving import serving
from tools.chromium import HOW_TO, find_chromium

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("CONSOLE") != "all", reason="`make test-console` runs it"),
    pytest.mark.skipif(
        shutil.which("mvn") is None, reason="the registry comes from Maven Central: needs mvn"
    ),
]
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "Customer"}],
}
MONEY = 'syntax = "proto3"; package common; message Money { string currency = 1; int64 cents = 2; }'
PAYMENT = """
syntax = "proto3"; package shop;
import "money.proto"; import "google/protobuf/timestamp.proto";
message Ignored { string x = 1; }
message Payment { common.Money amount = 1; google.protobuf.Timestamp at = 2; repeated Kind kinds = 3; }
enum Kind { NONE = 0; CARD = 1; }
"""


@dataclass
class Paid:
    cents: int


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio_registry(tmp_path_factory.mktemp("registry") / "apicurio.log") as url:
        yield url


def register(url: str, subject: str, schema: str, kind: str, *references: dict[str, Any]) -> int:
    body = {"schema": schema, "schemaType": kind, "references": list(references)}
    headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
    request = Request(f"{url}/subjects/{subject}/versions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=30) as answer:
        found: int = json.load(answer)["id"]
    return found


def avro_order(number: int) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    named: dict[str, Any] = {}
    parse_schema(CUSTOMER, named_schemas=named)
    stream = io.BytesIO()
    value = {"id": 9007199254740993, "customer": {"name": "<b>ada</b>"}}
    schemaless_writer(stream, parse_schema(ORDER, named_schemas=named), value)
    return struct.pack(">bI", 0, number) + stream.getvalue()


def payment(number: int) -> bytes:
    """Index 1 of the schema, and a Payment of 12.99 EUR at second 60, as Protobuf encodes it."""
    money = b"\x0a\x03EUR\x10\x93\x0a"
    body = b"\x0a" + bytes([len(money)]) + money + b"\x12\x02\x08\x3c" + b"\x1a\x01\x01"
    return struct.pack(">bI", 0, number) + b"\x02\x02" + body


def open_message(page: Page, text: str) -> None:
    cells = "[...document.querySelectorAll('main tbody td.value')]"
    page.js(f"{cells}.find(c => c.innerText.includes({json.dumps(text)})).click()")


def versioned(*fields: str, default: bool = True) -> str:
    """An Avro record; each field after the first has a default, unless there are none."""
    found = [
        {"name": name, "type": "string", **({"default": ""} if n and default else {})}
        for n, name in enumerate(fields)
    ]
    return json.dumps({"type": "record", "name": "Versioned", "fields": found})


OBJECT = {"type": "object", "additionalProperties": False}
TEXT = {"type": "string"}
DRAFTS = {
    "AVRO": (versioned("a"), versioned("a", "b"), versioned("a", "b", "c", default=False)),
    "JSON": (
        json.dumps({**OBJECT, "properties": {"a": TEXT}}),
        json.dumps({**OBJECT, "properties": {"a": TEXT, "b": TEXT}}),
        json.dumps({**OBJECT, "properties": {"a": {"type": "integer"}}}),
    ),
    "PROTOBUF": (
        'syntax = "proto3"; message V { string a = 1; }',
        'syntax = "proto3"; message V { string a = 1; string b = 2; }',
        'syntax = "proto3"; message V { int32 a = 1; }',
    ),
}


@pytest.mark.parametrize("kind", list(DRAFTS))
def test_a_subject_of_a_real_registry_from_its_first_draft_to_its_end(registry: str, kind: str) -> None:
    subject = f"life of/{kind}-value"
    named, first, second, broken = {"name": subject}, *DRAFTS[kind]
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap("127.0.0.1:1"),
        hosts=["testserver"],
        registry=registry_settings({}, registry),
    )

    def draft(schema: str) -> dict[str, Any]:
        return {"subject": subject, "draft": {"schema": schema, "kind": kind}}

    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:

        def said(method: str, path: str, **options: Any) -> Any:
            answer = client.request(method, f"/api/schemas/{path}", **options)
            assert answer.status_code == 200, answer.text
            return answer.json()

        said("POST", "level", json={"level": "BACKWARD"})
        assert said("POST", "check", json=draft(first))["compatible"] is None
        one = said("POST", "register", json=draft(first))
        assert one["version"] == 1
        assert said("POST", "check", json=draft(first))["known_version"] == 1
        assert said("POST", "check", json=draft(second))["compatible"] is True
        assert said("POST", "register", json=draft(second))["version"] == 2
        checked = said("POST", "check", json=draft(broken))
        assert checked["compatible"] is False
        refused = client.post("/api/schemas/register", json=draft(broken))
        assert refused.status_code == 409
        own = said("POST", "level", json={"subject": subject, "level": "FULL"})["level"]
        assert (own["name"], own["own"]) == ("FULL", True)
        said("POST", "level", json={"subject": subject})
        # Apicurio has no NONE of a subject: it removes the rule, so that the one of all subjects counts.
        assert said("POST", "level", json={"level": "NONE"})["level"]["name"] == "NONE"
        assert said("POST", "register", json=draft(broken))["version"] == 3
        found = said("GET", "subject", params=named)
        assert ([v["version"] for v in found["versions"]], found["chosen"]["type"]) == ([1, 2, 3], kind)
        assert said("GET", "difference", params={**named, "from": 1, "to": 2})["lines"]
        by_number = said("GET", f"ids/{one['id']}")
        assert {"subject": subject, "version": 1} in by_number["uses"]
        said("DELETE", "subject", params={**named, "version": 3})
        assert [
            v["version"] for v in said("GET", "subject", params=named)["versions"] if not v["deleted"]
        ] == [1, 2]
        said("DELETE", "subject", params=named)
        rows = {row["name"]: row["deleted"] for row in client.get("/api/schemas").json()["subjects"]}
        assert rows.get(subject) is True
        said("DELETE", "subject", params={**named, "permanent": 1})
        assert client.get("/api/schemas/subject", params=named).status_code == 404


def test_avro_and_protobuf_of_a_real_registry(registry: str, tmp_path: Path) -> None:
    path = find_chromium()
    if path is None:
        pytest.skip(HOW_TO)
    register(registry, "customer", json.dumps(CUSTOMER), "AVRO")
    customer = {"name": "Customer", "subject": "customer", "version": 1}
    avro = register(registry, "orders-value", json.dumps(ORDER), "AVRO", customer)
    register(registry, "money", MONEY, "PROTOBUF")
    money = {"name": "money.proto", "subject": "money", "version": 1}
    protobuf = register(registry, "payments-value", PAYMENT, "PROTOBUF", money)
    with broker(config={"num.partitions": "1"}) as running, chromium(path) as browser:
        produce(running.bootstrap, "orders", [avro_order(avro), payment(protobuf)])
        settings = ConsoleSettings(
            bootstrap=parse_bootstrap(running.bootstrap), registry=registry_settings({}, registry)
        )
        with serving(settings) as url:
            page = browser.page()
            page.open(f"{url}/#/topics/orders/messages")
            page.until("document.querySelectorAll('main tbody td.value').length === 2")
            open_message(page, "ada")
            page.until_text('"id": 9007199254740993', ".drawer")
            page.until_text(f"Avro, schema {avro}", ".drawer")
            page.until_text('"name": "<b>ada</b>"', ".drawer")
            open_message(page, "EUR")
            page.until_text('"cents": 1299', ".drawer")
            page.until_text('"at": "1970-01-01T00:01:00Z"', ".drawer")
            page.until_text('"CARD"', ".drawer")
            page.until_text(f"Protobuf shop.Payment, schema {protobuf}", ".drawer")
            assert page.errors() == []
            page.close()


def test_serializers_of_clients_write_and_read_messages_of_the_registry(registry: str) -> None:
    """Schemas are registered once, read back by number, and Java's console would show them."""
    from google.protobuf.wrappers_pb2 import Int64Value

    made = Registry(registry, timeout=30)
    values: list[tuple[Serializer, Serializer, Any]] = [
        (made.avro("clients-avro", CUSTOMER), Registry(registry).avro(), {"name": "Ada"}),
        (made.json("clients-json", Paid), Registry(registry).json(kind=Paid), Paid(3)),
        (
            made.protobuf(Int64Value, "clients-protobuf"),
            Registry(registry).protobuf(Int64Value),
            Int64Value(value=5),
        ),
    ]
    for writer, reader, value in values:
        assert reader.decode(writer.encode(value)) == value
    again = Registry(registry, timeout=30).avro("clients-avro", CUSTOMER, register=False)
    assert again.encode({"name": "Ada"}) == values[0][0].encode({"name": "Ada"})
    latest = Registry(registry, timeout=30).avro("clients-avro")
    assert latest.encode({"name": "Ada"}) == values[0][0].encode({"name": "Ada"})
    reference = {"name": "Customer", "subject": "clients-avro", "version": 1}
    number = register(registry, "clients-orders", json.dumps(ORDER), "AVRO", reference)
    found = Registry(registry, timeout=30).avro().decode(avro_order(number))
    assert found == {"id": 9007199254740993, "customer": {"name": "<b>ada</b>"}}
