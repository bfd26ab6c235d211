"""Messages in a browser: by offset, time, key and partition; headers, traces, dead letters, download."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.client import Producer
from penstock.records.codec import Codec
from penstock.testing.clusters import Cluster
from tests.console.batches import batch_of, write_batches
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


def test_a_batch_that_is_too_large_is_a_row_with_its_sizes(
    page: Page, url: str, brokers: Cluster, topic: str
) -> None:
    large = batch_of([bytes(99_000_000)], Codec.ZSTD)
    write_batches(brokers.bootstrap, topic, [batch_of([b"before"]), large, batch_of([b"after"])])
    page.open(f"{url}/#/topics/{topic}/messages")
    shown(page, 3)
    page.until_text("before", "main tbody")
    page.until_text("after", "main tbody")
    page.until_text("too large to show: 1 message,", "main tbody")
    page.until_text("94.4 MiB uncompressed", "main tbody")
    page.js("[...document.querySelectorAll('main tbody tr')][1].click()")
    page.until_text("read it with penstock consume", ".drawer")


#: a stream of events that a test makes, and the number of times that rows are drawn
FAKE_STREAM = """(() => {
  window.streams = [];
  window.EventSource = class extends EventTarget {
    constructor(url) { super(); this.url = url; streams.push(this); }
    close() { this.closed = true; }
  };
  window.drawn = 0;
  const draw = Element.prototype.replaceChildren;
  Element.prototype.replaceChildren = function (...all) {
    if (this.tagName === "TBODY") window.drawn += 1;
    return draw.apply(this, all);
  };
  window.burst = (first, events, size) => {
    const part = (text) => ({ kind: "text", text, size: text.length, truncated: false });
    const message = (n) => ({ partition: 0, offset: String(n), timestamp: null, timestamp_ms: "0",
      key: part("k"), value: part(`value-${n}`), tombstone: false, too_large: null, headers: [] });
    for (let e = 0; e < events; e += 1) {
      const messages = Array.from({ length: size }, (_, i) => message(first + e * size + i));
      const data = JSON.stringify({ messages, skipped: 0, errors: [] });
      streams.at(-1).dispatchEvent(new MessageEvent("messages", { data }));
    }
  };
})()"""


def test_a_live_tail_draws_once_for_many_events_and_is_bounded(page: Page, url: str, topic: str) -> None:
    """Ten messages a second held up a page for a minute, because each event drew all rows."""
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until_text("no message matches", "main")
    page.js(FAKE_STREAM)
    page.click("Live")
    page.until("streams.length === 1")
    page.js("(() => { window.drawn = 0; burst(0, 300, 10); })()")
    page.until_text("live: 3,000 new", "main")
    page.until_text("value-2999", "main tbody")
    assert page.js("drawn") <= 4
    assert page.js("document.querySelector('main .table-box').dataset.rows") == "1000"


def test_a_live_tail_is_paused_and_goes_on(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until_text("no message matches", "main")
    page.js(FAKE_STREAM)
    page.click("Live")
    page.until("streams.length === 1")
    page.js("burst(0, 1, 5)")
    page.until_text("value-4", "main tbody")
    page.click("Pause")
    page.js("burst(5, 200, 10)")
    page.until_text("paused: 1,000 new or more wait", "main")
    assert page.js("document.querySelector('main .table-box').dataset.rows") == "5"
    page.click("Go on")
    page.until_text("value-2004", "main tbody")
    page.press("p")
    page.until_text("paused: 0 new wait", "main")
    page.click("Live")
    page.until("streams.at(-1).closed")


def test_a_produced_message_appears_without_a_live_tail(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until_text("no message matches", "main")
    page.click("Produce")
    page.type("Value", "just-written")
    page.click("Send")
    page.until_text("offset 0", "dialog")
    page.press("Escape")
    page.until_text("just-written", "main tbody")


def test_keys_work_without_a_click(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    produce(brokers.bootstrap, topic, [b"first", b"second"])
    page.open(f"{url}/#/topics/{topic}/messages")
    shown(page, 2)
    assert page.js("document.activeElement.tagName") == "BODY"
    page.press("j")
    page.press("j")
    page.until("document.querySelectorAll('main tbody tr')[1].classList.contains('cursor')")
    page.press("k")
    page.until("document.querySelectorAll('main tbody tr')[0].classList.contains('cursor')")
    page.press("Enter")
    page.until_text("Timestamp", ".drawer")
    page.press("Escape")
    page.js("location.hash = '#/topics'")
    page.until_text(topic, "main tbody")
    page.press("j")
    page.press("Enter")
    page.until("location.hash.startsWith('#/topics/')")
