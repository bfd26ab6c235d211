"""Large clusters, large messages, Apache Kafka, and the cost of open pages: run by `make test-console`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from penstock.console.kafka.cluster import parse_bootstrap
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.testing import broker
from tests.console.browser import Browser, chromium
from tests.console.serving import serving
from tools import console_cost
from tools.chromium import HOW_TO, find_chromium

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("CONSOLE") != "all", reason="`make test-console` runs it"),
]
_TOPICS = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(HOW_TO)
    with chromium(path) as running:
        yield running


def create_topics(bootstrap: str, count: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for first in range(0, count, 500):
        new = [NewTopic(f"topic-{n:05}", 1, 1) for n in range(first, min(count, first + 500))]
        for future in admin.create_topics(new).values():
            future.result(60)


def test_ten_thousand_topics_are_listed_and_searched_fast(browser: Browser) -> None:
    with broker(config={"penstock.memory": "true"}) as running:
        create_topics(running.bootstrap, _TOPICS)
        with serving(running.bootstrap) as url:
            page = browser.page()
            page.open(f"{url}/#/topics")
            page.until(f"document.querySelector('.table-box')?.dataset.rows === '{_TOPICS}'", 60)
            assert page.js("document.querySelectorAll('main tbody tr').length") < 100
            took_ms = page.js(_SEARCH)
            assert took_ms < 500
            page.js(_ALL)
            page.until(f"document.querySelector('.table-box').dataset.rows === '{_TOPICS}'")
            page.js("document.querySelector('.table-box').scrollTop = 1e9")
            page.until_text("topic-09999", "main")
            page.close()


#: milliseconds until a search shows its one row
_SEARCH = """(async () => {
  const box = document.querySelector('[data-search]');
  const began = performance.now();
  box.value = 'topic-07777';
  box.dispatchEvent(new Event('input'));
  while (document.querySelector('.table-box').dataset.rows !== '1') await new Promise(requestAnimationFrame);
  return performance.now() - began;
})()"""


_ALL = """(() => {
  const box = document.querySelector('[data-search]');
  box.value = '';
  box.dispatchEvent(new Event('input'));
})()"""


def test_a_page_of_a_large_message_stays_small(browser: Browser) -> None:
    with broker(config={"message.max.bytes": "20000000"}) as running, serving(running.bootstrap) as url:
        settings = ConsoleSettings(bootstrap=parse_bootstrap(running.bootstrap), hosts=["testserver"])
        with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as console:
            console.post("/api/topics", json={"name": "large", "partitions": 1})
            value = {"text": "<b>" + "x" * 10_000_000}
            console.post("/api/topics/large/messages", json={"key": {"format": "null"}, "value": value})
        page = browser.page()
        page.open(f"{url}/#/topics/large/messages")
        page.until("document.querySelector('main tbody td.value')")
        page.js("document.querySelector('main tbody td.value').click()")
        page.until_text("Only the beginning is shown", ".drawer")
        assert page.js("document.body.innerText.length") < 1_000_000
        page.close()


def test_apache_kafka(real_kafka: str) -> None:
    settings = ConsoleSettings(bootstrap=parse_bootstrap(real_kafka), hosts=["testserver"], timeout_s=15.0)
    with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as console:
        assert console.post("/api/topics", json={"name": "theirs", "partitions": 2}).status_code == 200
        url = "/api/topics/theirs/messages"
        body = {"key": {"text": "k"}, "value": {"text": '{"id":9007199254740993}', "format": "json"}}
        for _ in range(3):
            assert console.post(url, json=body).status_code == 200
        found = console.get(url, params={"filter": "value.id = 9007199254740993"}).json()
        assert len(found["messages"]) == 3
        state = console.get("/api/overview").json()
        assert (state["health"]["level"], state["quorum"] is not None) == ("Healthy", True)
        asyncio.run(_commit(real_kafka))
        page = console.get("/api/group", params={"name": "readers"}).json()
        assert (page["lag"], page["kind"] in ("classic", "consumer")) == (2, True)
        wanted = {"target": "earliest", "save": True}
        assert console.post("/api/group/reset", params={"name": "readers"}, json=wanted).json()["saved"]
        assert console.get("/api/group", params={"name": "readers"}).json()["lag"] == 3
        for path in ("cluster", "transactions", "security", "quotas", "groups", "topics/theirs/configs"):
            assert console.get(f"/api/{path}").status_code == 200, path
        diff = console.post(
            "/api/topics/theirs/configs", json={"changes": {"retention.ms": "1000"}, "save": True}
        )
        assert diff.json()["saved"]
        assert console.delete("/api/topics/theirs").status_code == 200


async def _commit(bootstrap: str) -> None:
    from penstock.client import Consumer

    async with Consumer(bootstrap, "theirs", group="readers", auto_commit=False) as consumer:
        async for message in consumer:
            await consumer.commit(message)
            return


def test_ten_open_consoles_cost_a_cluster_less_than_a_twentieth_of_a_core() -> None:
    """Three brokers as processes, ten consoles with a page each."""
    assert console_cost.main(["--seconds", "20"]) == 0
