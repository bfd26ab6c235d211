"""The routes about links, over two clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from penstock.client import Admin
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at, link
from tests.waiting import eventually


@pytest.fixture
def source() -> Iterator[str]:
    with broker(config=DEFAULTS) as running:
        yield running.bootstrap


def test_links_with_state_lag_and_errors(console: TestClient, bootstrap: str, source: str) -> None:
    assert console.get("/api/links").json() == {"links": []}
    missing = console.get("/api/link", params={"name": "west"})
    assert (missing.status_code, missing.json()["error"]) == (404, "LinkError")
    create(source, "mirrored-orders", 2)
    link(bootstrap, source, prefix="west.", topics="mirrored-*", sasl_password="hidden")
    link(bootstrap, "127.0.0.1:1", name="gone")
    for partition in (0, 1):
        ends_at(bootstrap, "west.mirrored-orders", 0, partition)

    def shown() -> dict[str, dict[str, object]]:
        return {each["link"]: each for each in console.get("/api/links").json()["links"]}

    try:
        eventually(lambda: shown()["gone"]["error"] != "")
        west = shown()["west"]
        assert (west["source"], west["state"], west["error"]) == (source, "active", "")
        assert (west["topics"], west["partitions"], west["lag_records"]) == (1, 2, 0)

        def mirrored() -> list[tuple[object, ...]]:
            rows = console.get("/api/link", params={"name": "west"}).json()["partitions"]
            keys = ("topic", "partition", "state", "phase", "end_offset", "lag_records")
            return [tuple(row[key] for key in keys) for row in rows]

        topic = "west.mirrored-orders"
        eventually(lambda: mirrored() == [(topic, n, "mirroring", "mirroring", "0", 0) for n in (0, 1)])
        found = console.get("/api/link", params={"name": "west"})
        assert "hidden" not in found.json()["configs"].values()
        problems = console.get("/api/link", params={"name": "gone"}).json()["problems"]
        assert list(problems) == [f"broker {bootstrap}"]
    finally:
        asyncio.run(_delete(bootstrap, "west", "gone"))
    assert console.get("/api/links").json() == {"links": []}


async def _delete(bootstrap: str, *names: str) -> None:
    async with Admin(bootstrap, timeout=30) as admin:
        for name in names:
            await admin.links.delete(name, force=True)
