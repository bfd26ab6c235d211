"""Messages in a browser: by offset, time, key and partition; headers, traces, dead letters, download."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.client import Producer
from penstock.testing.clusters import Cluster
from tests.console.browser import Page
from tests.console.pages.conftest import produce

pytestmark = pytest.mark.process
TRACE = "0af7651916cd43dd8448eb211c80319c"


def shown(page: Page, rows: int) -> None:
    page.until(f"document.querySelectorAll('main tbody td.value').length === {rows}")


def read(page: Page) -> None:
    page.click("Read")
    page.until("!document.querySelector('main').innerText.includes('reading…')")


def test_messages_are_found_by_offset_time_key_and_partition(
    page: Page, url: str, brokers: Cluster, topic: str
) -> None:
    produce(brokers.bootstrap, topic, [f"value-{n}".encode() for n in range(12)])
    page.open(f"{url}/#/topics/{topic}/messages")
    shown(page, 12)
    page.type("Key", "key-7")
    read(page)
    shown(page, 1)
    page.until_text("value-7", "main tbody")
    page.type("Key", "")
    page.type("Partition", "1")
    read(page)
    page.until("[...document.querySelectorAll('main tbody tr')].every(r => r.cells[0].innerText === '1')")
    held = page.js("document.querySelectorAll('main tbody td.value').length")
    page.type("From", "offset")
    page.type("Offset", "1")
    read(page)
    shown(page, held - 1)
    page.type("From", "time")
    page.type("Time", "2099-01-01T00:00:00")
    read(page)
    page.until_text("no message matches", "main tbody")
    page.type("Time", "2001-01-01T00:00:00")
    read(page)
    shown(page, held)
    assert page.js("location.hash").count("time=") == 1
    lines = page.js(
        "fetch(document.querySelector('a[download].button').href).then(r => r.text())"
    ).splitlines()
    assert {json.loads(line)["partition"] for line in lines} == {1}


def test_a_dead_letter_is_sent_back_and_its_trace_followed(
    page: Page, url: str, brokers: Cluster, topic: str
) -> None:
    headers = {
        "__dlq.errors.topic": f"{topic}-again",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    }

    async def send() -> None:
        async with Producer(brokers.bootstrap) as producer:
            await producer.send(topic, b"\xff\x00broken", headers=headers)
            await producer.send(topic, b"other")

    asyncio.run(send())
    produce(brokers.bootstrap, f"{topic}-again", [b"first"])
    page.open(f"{url}/#/topics/{topic}/messages")
    shown(page, 2)
    cells = "[...document.querySelectorAll('main tbody td.value')]"
    page.js(f"{cells}.find(c => !/other/.test(c.innerText)).click()")
    page.until_text("traceparent", ".drawer")
    page.click("Send back…")
    page.click("Send")
    page.until("!document.querySelector('dialog')")
    page.click(TRACE)
    shown(page, 1)
    page.open(f"{url}/#/topics/{topic}-again/messages?format=bytes")
    shown(page, 2)
    page.until_text("ff 00 62 72 6f 6b 65 6e", "main tbody")


def test_a_partition_moves_to_other_brokers(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/cluster")
    page.click("Move partition")
    page.type("Topic", topic)
    page.type("Partition", "0")
    page.type("Brokers, the preferred leader first", "3, 1")
    page.click("Move")
    page.until("!document.querySelector('dialog')")
    page.type("Topics on the map", topic)
    row = "document.querySelector('.map tbody tr')"
    page.until(f"{row} && {row}.querySelectorAll('.cell.none').length === 1")
    page.until_text("no partition is moving", "main")
