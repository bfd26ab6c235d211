"""Topics over HTTP, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from tests.broker.app.tiered_topics import TIERED, tiered
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic
from tests.waiting import eventually


def names(console: TestClient) -> list[str]:
    found = console.get("/api/topics").json()
    name = [column["id"] for column in found["columns"]].index("name")
    return [row[name] for row in found["rows"]]


def test_a_topic_is_created_listed_and_deleted(console: TestClient, topic: str) -> None:
    assert topic in names(console)
    assert console.delete(f"/api/topics/{topic}").status_code == 200
    assert topic not in names(console)
    missing = console.get(f"/api/topics/{topic}")
    assert (missing.status_code, missing.json()["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_broker_explains_why_a_topic_is_not_created(console: TestClient, topic: str) -> None:
    again = console.post("/api/topics", json={"name": topic})
    assert (again.status_code, again.json()["error"]) == (409, "TOPIC_ALREADY_EXISTS")
    wrong = console.post("/api/topics", json={"name": "a b"})
    assert wrong.json()["error"] == "INVALID_TOPIC_EXCEPTION"
    assert console.post("/api/topics", json={"nome": "x"}).status_code == 400


def test_validation_creates_nothing(console: TestClient) -> None:
    assert console.post("/api/topics", json={"name": "only-checked", "validate": True}).status_code == 200
    assert "only-checked" not in names(console)


def test_partitions_are_added(console: TestClient, topic: str) -> None:
    assert console.post(f"/api/topics/{topic}/partitions", json={"total": 5}).status_code == 200
    page = console.get(f"/api/topics/{topic}").json()
    assert [p["partition"] for p in page["partitions"]] == [0, 1, 2, 3, 4]
    assert page["partitions"][0]["end"] == "0"
    fewer = console.post(f"/api/topics/{topic}/partitions", json={"total": 2})
    assert fewer.json()["error"] == "INVALID_PARTITIONS"


def test_configs_are_compared_before_they_are_saved(console: TestClient, topic: str) -> None:
    url = f"/api/topics/{topic}/configs"
    preview = console.post(url, json={"changes": {"retention.ms": "1000", "flush.ms": None}}).json()
    assert [line["name"] for line in preview["diff"]] == ["retention.ms"]
    assert not preview["saved"]
    before = {row["name"]: row for row in console.get(url).json()["configs"]}
    assert not before["retention.ms"]["set"]
    assert console.post(url, json={"changes": {"retention.ms": "1000"}, "save": True}).json()["saved"]
    after = {row["name"]: row for row in console.get(url).json()["configs"]}
    assert (after["retention.ms"]["value"], after["retention.ms"]["source"]) == ("1000", "topic")


def test_an_invalid_config_is_refused_in_the_preview(console: TestClient, topic: str) -> None:
    refused = console.post(f"/api/topics/{topic}/configs", json={"changes": {"retention.ms": "soon"}})
    assert refused.json()["error"] == "INVALID_CONFIG"


def test_a_tiered_topic_shows_its_offsets_on_disks_and_in_the_archive(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
    with broker(config=tiered(tmp_path)) as running:
        settings = ConsoleSettings(bootstrap=parse_bootstrap(running.bootstrap), hosts=["testserver"])
        with RawClient(running.bootstrap) as client, TestClient(build_app(settings)) as page:
            topic = create_topic(client, configs={**TIERED, "local.retention.bytes": "0"})
            plain = create_topic(client)
            for n in range(20):
                append(client, topic, b"%d" % n * 60)

            def shown(name: str) -> dict[str, str | None]:
                found: dict[str, str | None] = page.get(f"/api/topics/{name}").json()["partitions"][0]
                return found

            eventually(lambda: int(shown(topic.name)["local_start"] or 0) > 10)
            # An offset is left out when a broker does not respond in time.
            eventually(lambda: int(shown(topic.name)["copied"] or 0) >= 10)
            assert shown(topic.name)["start"] == "0"
            assert page.get(f"/api/topics/{topic.name}").json()["tiered"]
            assert (shown(plain.name)["copied"], shown(plain.name)["local_start"]) == (None, None)
