"""Messages over HTTP: browse, search, produce, download. Reading leaves no trace in the cluster."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.messages import produce, read


def values(page: Any) -> list[str]:
    return [message["value"]["text"] for message in page["messages"]]


@pytest.fixture
def numbers(console: TestClient, topic: str) -> str:
    """Ten messages in each of three partitions."""
    for n in range(30):
        produce(console, topic, f"v{n}", f"k{n}", partition=n % 3)
    return topic


def test_the_newest_come_first_and_older_ones_follow(console: TestClient, numbers: str) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        page = read(console, numbers, limit=7, **({"cursor": cursor} if cursor else {}))
        seen = values(page) + seen
        cursor = page["cursor"]
        if page["complete"]:
            break
    assert seen == [f"v{n}" for n in range(30)]


def test_from_the_oldest_on(console: TestClient, numbers: str) -> None:
    first = read(console, numbers, **{"from": "oldest"}, limit=20)
    second = read(console, numbers, **{"from": "oldest"}, limit=20, cursor=first["cursor"])
    assert sorted(values(first) + values(second)) == sorted(f"v{n}" for n in range(30))
    assert second["complete"]


def test_by_offset_partition_and_time(console: TestClient, numbers: str) -> None:
    page = read(console, numbers, **{"from": "offset"}, offset=8, partition=1)
    assert [(m["partition"], m["offset"]) for m in page["messages"]] == [(1, "8"), (1, "9")]
    when = page["messages"][1]["timestamp_ms"]
    later = read(console, numbers, **{"from": "time"}, time=when, partition=1)
    assert values(later)[-1] == "v28"
    assert read(console, numbers, **{"from": "offset"}, offset=str(2**63 - 1))["messages"] == []


def test_by_key_only_its_partition_is_read(console: TestClient, topic: str) -> None:
    for n in range(12):
        produce(console, topic, f"v{n}", f"k{n % 4}")
    page = read(console, topic, key="k2")
    assert values(page) == ["v2", "v6", "v10"]
    assert len(page["bounds"]) == 1


def test_a_filter_searches_further_back(console: TestClient, numbers: str) -> None:
    assert values(read(console, numbers, filter="value = v1", limit=1)) == ["v1"]
    refused = console.get(f"/api/topics/{numbers}/messages", params={"filter": "value ="})
    assert (refused.status_code, refused.json()["error"]) == (400, "InvalidFilter")


@pytest.mark.parametrize(
    "query", [{"from": "x"}, {"partition": "9"}, {"offset": "-1", "from": "offset"}, {"cursor": "x"}]
)
def test_wrong_queries_are_explained(console: TestClient, topic: str, query: dict[str, str]) -> None:
    assert console.get(f"/api/topics/{topic}/messages", params=query).status_code == 400


def test_nulls_tombstones_binary_and_headers(console: TestClient, topic: str) -> None:
    binary = b64encode(b"\x00\xff<b>").decode()
    produce(console, topic, None, "gone", partition=0)
    produce(console, topic, {"format": "base64", "text": binary}, partition=0)
    header = {"name": "h", "value": {"text": "<i>"}}
    produce(
        console, topic, {"format": "json", "text": '{"id":9007199254740993}'}, headers=[header], partition=0
    )
    gone, raw, number = read(console, topic)["messages"]
    assert (gone["tombstone"], gone["value"]["kind"]) == (True, "null")
    assert (raw["value"]["kind"], raw["key"]["kind"], raw["value"]["size"]) == ("bytes", "null", 5)
    assert "9007199254740993" in number["value"]["text"]
    assert number["headers"][0]["value"]["text"] == "<i>"
    download = console.get(f"/api/topics/{topic}/messages/0/1/raw")
    assert download.content == b"\x00\xff<b>"
    assert download.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in download.headers["content-security-policy"]


def test_a_large_message_is_cut_in_lists_and_whole_in_downloads(console: TestClient, topic: str) -> None:
    console.post(
        f"/api/topics/{topic}/configs", json={"changes": {"max.message.bytes": "20000000"}, "save": True}
    )
    large = json.dumps({"blob": "x" * 10_000_000})
    produce(console, topic, large, partition=0)
    page = console.get(f"/api/topics/{topic}/messages")
    assert len(page.content) < 20_000
    (shown,) = page.json()["messages"]
    assert (shown["value"]["size"], shown["value"]["truncated"]) == (len(large), True)
    assert len(console.get(f"/api/topics/{topic}/messages/0/0").content) < 1_000_000
    assert console.get(f"/api/topics/{topic}/messages/0/0/raw").text == large


def test_a_message_that_is_not_there(console: TestClient, topic: str) -> None:
    missing = console.get(f"/api/topics/{topic}/messages/0/5")
    assert missing.status_code == 404


def test_a_download_of_all(console: TestClient, numbers: str) -> None:
    found = console.get(f"/api/topics/{numbers}/export", params={"from": "oldest", "filter": "partition = 1"})
    lines = [json.loads(line) for line in found.text.splitlines()]
    assert [line["value"] for line in lines] == [f"v{n}" for n in range(1, 30, 3)]


def test_a_dead_letter_is_sent_back_byte_by_byte(console: TestClient, topic: str) -> None:
    headers = [
        {"name": "kept", "value": {"text": "1"}},
        {"name": "__dlq.errors.topic", "value": {"text": topic}},
    ]
    value = {"format": "base64", "text": b64encode(b"\xff\x00").decode()}
    produce(console, topic, value, "k", headers=headers, partition=2)
    sent = console.post(f"/api/topics/{topic}/messages/2/0/resend", json={"topic": topic}).json()
    again = console.get(f"/api/topics/{topic}/messages/{sent['partition']}/{sent['offset']}").json()
    assert [header["name"] for header in again["headers"]] == ["kept"]
    raw = console.get(f"/api/topics/{topic}/messages/{sent['partition']}/{sent['offset']}/raw")
    assert raw.content == b"\xff\x00"


def test_wrong_messages_are_refused(console: TestClient, topic: str) -> None:
    url = f"/api/topics/{topic}/messages"
    null = {"format": "null"}
    for value in ({"text": "%", "format": "base64"}, {"text": "{", "format": "json"}):
        assert console.post(url, json={"key": null, "value": value}).status_code == 400
    far = console.post(url, json={"key": null, "value": null, "partition": 9})
    assert far.json()["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def _groups(console: TestClient) -> set[str]:
    return {group["name"] for group in console.get("/api/groups").json()["groups"]}


def test_reading_creates_no_topic_and_no_group(console: TestClient, numbers: str) -> None:
    groups = _groups(console)
    assert console.get("/api/topics/never-made/messages").status_code == 404
    assert console.get("/api/topics/never-made/tail").status_code == 404
    read(console, numbers)
    assert _groups(console) == groups
    assert "never-made" not in json.dumps(console.get("/api/topics").json())
