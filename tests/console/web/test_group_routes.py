"""Groups over HTTP: a classic and a consumer group of real clients, lag, reset with a preview, delete."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from starlette.testclient import TestClient

from penstock.client import Consumer, Queue


def read_some(bootstrap: str, topic: str, group: str, protocol: Literal["classic", "consumer"]) -> None:
    """Commit one message of a topic as a member of a group."""

    async def read() -> None:
        async with Consumer(bootstrap, topic, group=group, protocol=protocol, reset="earliest") as consumer:
            async for message in consumer:
                await consumer.commit(message)
                return

    asyncio.run(read())


def page(console: TestClient, name: str) -> Any:
    response = console.get("/api/group", params={"name": name})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_its_lag_and_its_reset(
    console: TestClient, bootstrap: str, topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    name = f"group/of {topic}"
    for n in range(5):
        body = {"key": {"format": "null"}, "value": {"text": str(n)}, "partition": 0}
        console.post(f"/api/topics/{topic}/messages", json=body)
    read_some(bootstrap, topic, name, protocol)
    found = page(console, name)
    assert (found["kind"], found["state"], found["lag"]) == (protocol, "Empty", 4)
    wanted = {"target": "latest", "topics": [topic]}
    preview = console.post("/api/group/reset", params={"name": name}, json=wanted).json()
    assert preview["moves"][0] == {
        "topic": topic,
        "partition": 0,
        "before": "1",
        "after": "5",
        "change": "4",
    }
    assert page(console, name)["lag"] == 4
    saved = console.post("/api/group/reset", params={"name": name}, json={**wanted, "save": True})
    assert saved.json()["saved"]
    assert page(console, name)["lag"] == 0
    listed = {group["name"]: group for group in console.get("/api/groups").json()["groups"]}
    assert listed[name]["lag"] == 0
    assert console.delete("/api/group", params={"name": name}).status_code == 200
    assert console.get("/api/group", params={"name": name}).status_code == 404


def test_wrong_resets_are_explained(console: TestClient) -> None:
    url = "/api/group/reset"
    assert console.post(url, params={"name": "none"}, json={"target": "latest"}).status_code == 404
    assert console.get("/api/group").status_code == 400


def test_a_share_group_its_lag_and_its_reset(console: TestClient, bootstrap: str, topic: str) -> None:
    """The lag is the coordinator's: accepted records count no more, also those behind the start offset."""
    name = f"queue/of {topic}"
    for n in range(5):
        body = {"key": {"format": "null"}, "value": {"text": str(n)}, "partition": 0}
        console.post(f"/api/topics/{topic}/messages", json=body)

    async def accept_three() -> dict[str, Any]:
        async with Queue(bootstrap, topic, group=name, client_id="worker") as queue:
            seen = 0
            async for _ in queue:
                seen += 1
                if seen == 3:
                    return await asyncio.to_thread(page, console, name)
        raise AssertionError

    during = asyncio.run(accept_three())
    assert (during["kind"], during["state"]) == ("share", "Stable")
    assert [member["client"] for member in during["members"]] == ["worker"]
    assert {row["member"] for row in during["offsets"]} == {"worker"}
    after = page(console, name)
    assert (after["state"], after["lag"]) == ("Empty", 2)
    wanted = {"target": "earliest", "topics": [topic]}
    preview = console.post("/api/group/reset", params={"name": name}, json=wanted).json()
    assert [(m["before"], m["after"]) for m in preview["moves"] if m["partition"] == 0] == [("3", "0")]
    assert page(console, name)["lag"] == 2
    assert console.post("/api/group/reset", params={"name": name}, json={**wanted, "save": True}).is_success
    assert page(console, name)["lag"] == 5
    listed = {group["name"]: group for group in console.get("/api/groups").json()["groups"]}
    assert (listed[name]["kind"], listed[name]["lag"]) == ("share", 5)
    assert console.delete("/api/group", params={"name": name}).status_code == 200
