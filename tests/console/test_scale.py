"""Large clusters, large messages, Apache Kafka, and the cost of open pages: run by `make test-console`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock.cli.cluster.relay_home import RelayHome
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from tests.cli.running import PENSTOCK, run
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
#: a reason of Apache Kafka's broker that is about this machine
_NEARLY_FULL = "free, less than"


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


def test_the_map_of_ten_thousand_topics_is_there_within_two_seconds(browser: Browser) -> None:
    """It took 17 s: one table for each of 3,000 topics."""
    with broker(config={"penstock.memory": "true"}) as running:
        create_topics(running.bootstrap, _TOPICS)
        with serving(running.bootstrap) as url:
            page = browser.page()
            page.open(f"{url}/#/topics")
            page.until(f"document.querySelector('.table-box')?.dataset.rows === '{_TOPICS}'", 60)
            page.js("window.began = performance.now(); location.hash = '#/cluster'")
            page.until(
                "document.querySelector('main .map td .cell') && (window.took ??= performance.now() - began)"
            )
            assert page.js("took") < 2_000
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
        # The volume of this machine may be nearly full.
        assert not [reason for reason in state["health"]["reasons"] if _NEARLY_FULL not in reason]
        assert state["quorum"] is not None
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


def test_apache_kafka_in_a_browser(browser: Browser, real_kafka: str) -> None:
    """Every page shows a cluster of Apache Kafka; its controller's listener gives the metadata log."""
    settings = ConsoleSettings(bootstrap=parse_bootstrap(real_kafka), timeout_s=15.0)
    with serving(settings) as url:
        page = browser.page()
        page.open(url)
        page.until_text("Broker 1", "main", 60)
        text = page.text("main")
        assert "The cluster is healthy" in text or _NEARLY_FULL in text, text
        page.open(f"{url}/#/topics")
        page.click("Create topic")
        page.type("Name", "in-a-browser")
        page.type("Partitions", "2")
        page.click("Create")
        page.until_text("no message matches", "main")
        page.click("Produce")
        page.type("Key", "k")
        page.type("Value", '{"n": 9007199254740993}')
        page.click("Send")
        page.until_text("offset 0", "dialog")
        page.press("Escape")
        page.click("Read")
        page.until_text("9007199254740993", "main tbody")
        page.click("Configs")
        page.type("Search configs", "retention.ms")
        page.until_text("retention.ms", "main tbody")
        page.open(f"{url}/#/cluster")
        page.until("document.querySelectorAll('.broker-card').length === 1")
        page.click("Metadata log")
        page.type("Search changes", "in-a-browser-")
        page.until("document.querySelectorAll('.timeline tbody tr').length === 2")
        assert page.js("document.querySelectorAll('.faults').length") == 0
        for place, text in (
            ("groups", "Groups"),
            ("transactions", "Transactions"),
            ("security", "This cluster has no roles"),
            ("quotas", "Set quota"),
        ):
            page.open(f"{url}/#/{place}")
            page.until_text(text, "main")
            assert not page.js("document.querySelector('main .note.bad')"), page.text("main")
            assert page.nameless() == []
        assert "GPU fleet" not in page.text("nav")
        assert page.errors() == []
        page.close()


async def _commit(bootstrap: str) -> None:
    from penstock.client import Consumer

    async with Consumer(bootstrap, "theirs", group="readers", auto_commit=False) as consumer:
        async for message in consumer:
            await consumer.commit(message)
            return


def test_a_broker_is_cut_off_and_reconnected(browser: Browser, tmp_path: Path) -> None:
    """Three brokers behind relays: leaders move away from a broker that is cut off, and it comes back."""
    data = tmp_path / "cluster"
    started = run("cluster", "start", "--brokers", "3", "--port", "0", "--relays", "--data", str(data))
    assert started.returncode == 0, started.stderr
    command = [*PENSTOCK, "console", "--data", str(data), "--port", "0", "--faults", "--timeout", "3"]
    first = "document.querySelector('[aria-label=\"Broker 1\"]')"
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
            try:
                assert console.stdout is not None
                url = console.stdout.readline().split()[1]
                page = browser.page()
                page.open(f"{url}/#/topics")
                page.click("Create topic")
                page.type("Name", "watched")
                page.type("Partitions", "6")
                page.click("Create")
                page.until_text("no message matches", "main")
                page.open(f"{url}/#/cluster")
                page.until("document.querySelectorAll('.map .cell.leader').length === 6")
                page.until(f"/leads 2/.test({first}.innerText)")
                page.click("cut off")
                page.until(f"/fenced/.test({first}.innerText) && /leads 0/.test({first}.innerText)", 90)
                page.until("document.querySelectorAll('.map .cell.leader').length === 6")
                page.click("reconnect")
                page.until(f"/running/.test({first}.innerText)", 90)
                page.until("document.querySelectorAll('.map .cell.out').length === 0", 90)
                page.close()
            finally:
                console.terminate()
                console.wait(20)
    finally:
        run("cluster", "stop", "--data", str(data))
    assert not RelayHome(data).process()


def test_ten_open_consoles_cost_a_cluster_less_than_a_twentieth_of_a_core() -> None:
    """Three brokers as processes, ten consoles with a page each."""
    assert console_cost.main(["--seconds", "20"]) == 0
