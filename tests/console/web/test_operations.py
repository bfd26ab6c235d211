"""Delete records, send dead letters back, abort a hanging transaction, over HTTP on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.records.record import Record, build_batch
from penstock.testing import broker
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.raw import RawClient

WAIT_S = 60


@pytest.fixture(scope="module")
def unverified() -> Iterator[tuple[str, TestClient]]:
    """A broker that takes transactional batches which no coordinator knows, as old versions of Kafka do."""
    with broker(config={"transaction.partition.verification.enable": "false"}) as running:
        settings = ConsoleSettings(bootstrap=parse_bootstrap(running.bootstrap), hosts=["testserver"])
        with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
            yield running.bootstrap, client


def send(console: TestClient, topic: str, count: int, headers: dict[str, str] | None = None) -> None:
    named = [{"name": name, "value": {"text": value}} for name, value in (headers or {}).items()]
    for n in range(count):
        body = {"key": {"text": f"k{n}"}, "value": {"text": f"v{n}"}, "headers": named, "partition": 0}
        assert console.post(f"/api/topics/{topic}/messages", json=body).status_code == 200


def test_records_before_an_offset_are_deleted(console: TestClient, topic: str) -> None:
    send(console, topic, 5)
    done = console.post(f"/api/topics/{topic}/cut", json={"before": {"0": "3"}})
    assert (done.status_code, done.json()) == (200, {"starts": {"0": "3"}})
    assert console.get(f"/api/topics/{topic}").json()["partitions"][0]["start"] == "3"
    beyond = console.post(f"/api/topics/{topic}/cut", json={"before": {"0": "99"}})
    assert (beyond.status_code, beyond.json()["error"]) == (404, "OFFSET_OUT_OF_RANGE")
    wrong = console.post(f"/api/topics/{topic}/cut", json={"before": {"0": "-1"}})
    assert wrong.status_code == 400


def test_letters_are_counted_and_then_sent_back(console: TestClient, topic: str) -> None:
    letters = f"{topic}.letters"
    console.post("/api/topics", json={"name": letters, "partitions": 1})
    origin = {"__dlq.errors.topic": topic, "__dlq.errors.group": "g", "kept": "yes"}
    send(console, letters, 3, origin)
    send(console, letters, 1)
    url = f"/api/topics/{letters}/redrive"
    counted = console.post(url, json={"send": False}).json()
    assert counted == {"topics": {topic: 3}, "skipped": 1, "stopped": None, "limited": False}
    assert console.get(f"/api/topics/{topic}/messages").json()["messages"] == []
    assert console.post(url, json={"send": True}).json()["topics"] == {topic: 3}
    found = console.get(f"/api/topics/{topic}/messages").json()["messages"]
    assert sorted(message["value"]["text"] for message in found) == ["v0", "v1", "v2"]
    assert {header["name"] for message in found for header in message["headers"]} == {"kept"}
    one = console.post(url, params={"filter": 'key = "k1"'}, json={"send": False}).json()
    assert (one["topics"], one["skipped"]) == ({topic: 1}, 0)
    lost = console.post(url, json={"to": "never-made", "send": True}).json()
    assert lost["topics"] == {}
    assert "stopped at partition 0, offset 0" in lost["stopped"]


def test_only_a_transaction_that_no_coordinator_knows_is_aborted(unverified: tuple[str, TestClient]) -> None:
    bootstrap, console = unverified
    for name in ("used", "hung"):
        assert console.post("/api/topics", json={"name": name, "partitions": 1}).status_code == 200
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "in-use"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("used", b"x")
    producer.flush(WAIT_S)
    batch = build_batch(
        [Record(0, 1, None, b"v")], producer_id=424242, producer_epoch=0, base_sequence=0, transactional=True
    )
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id="forgotten",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="hung", partition_data=[data])],
    )
    with RawClient(bootstrap) as client:
        # From version 12 on, the coordinator is asked to add the partition.
        response = client.call(PRODUCE, 11, request)
    assert response.responses[0].partition_responses[0].error_code == 0
    found = console.get("/api/transactions/open").json()
    assert found["gap"] is None
    assert [(row["topic"], row["hanging"]) for row in found["open"]] == [("hung", True), ("used", False)]
    place = {"topic": "used", "partition": 0, "start_offset": "0"}
    refused = console.post("/api/transactions/abort", json=place)
    assert (refused.status_code, refused.json()["error"]) == (409, "INVALID_TXN_STATE")
    done = console.post("/api/transactions/abort", json={**place, "topic": "hung"})
    assert done.status_code == 200, done.text
    assert [row["topic"] for row in console.get("/api/transactions/open").json()["open"]] == ["used"]
    assert console.get("/api/topics/hung/messages").json()["messages"] == []
    again = console.post("/api/transactions/abort", json={**place, "topic": "hung"})
    assert again.status_code == 404
    producer.commit_transaction(WAIT_S)


def test_rights_are_those_that_brokers_state(console: TestClient, topic: str) -> None:
    assert {"create", "alter", "alter_configs"} <= set(console.get("/api/rights").json()["cluster"])
    assert {"write", "delete"} <= set(console.get(f"/api/topics/{topic}/exists").json()["rights"])
    assert console.get("/api/topics/never-made/exists").status_code == 404
