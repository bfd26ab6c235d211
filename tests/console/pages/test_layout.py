"""Large lists draw what is visible, long names are cut, and a phone shows values."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import Admin, Producer
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import produce

pytestmark = pytest.mark.process
LONG = "long-name." + "of-many-parts." * 15 + "end"
#: the answer of a cluster with 10,000 topics
MANY = """(() => {
  const real = window.fetch;
  const broker = (id) => ({ id, address: "h:1", rack: null, state: "running", leads: 1, replicas: 1,
    behind: 0, voter: true, controller: id === 1, size: 1, disk_free: null, disk_total: null });
  const partitions = Array.from({ length: 10000 }, (_, n) => [`topic-${n}`, 0, 1, [1, 2, 3], [1, 2, 3]]);
  const answer = { brokers: [1, 2, 3].map(broker), quorum: null, partitions, total: 10000, problems: 0,
    folded: 3, gap: null };
  const response = () => Promise.resolve(new Response(JSON.stringify(answer)));
  window.fetch = (path, options) => (path.startsWith("/api/cluster?") ? response() : real(path, options));
})()"""


@pytest.fixture(scope="module")
def long_topic(brokers: Cluster) -> str:
    async def make() -> None:
        async with Admin(brokers.bootstrap) as admin:
            await admin.create_topic(LONG, partitions=1, replicas=3)

    asyncio.run(make())
    return LONG


def test_a_map_of_ten_thousand_topics_draws_the_visible_ones(page: Page, url: str) -> None:
    page.open(url)
    page.until_text("healthy", "main")
    page.js(MANY)
    page.js("location.hash = '#/cluster'")
    page.until("document.querySelectorAll('.map .cell.leader').length > 5")
    assert page.js("document.querySelectorAll('main *').length") < 2_000
    page.js("document.querySelector('.table-box.map').scrollTop = 1e9")
    page.until_text("topic-9999", "main")
    page.until_text("3 internal topics", "main")


def test_a_long_name_is_cut_with_the_whole_name_on_hover(page: Page, url: str, long_topic: str) -> None:
    page.open(f"{url}/#/topics")
    page.until_text("long-name", "main tbody")
    shown = f"document.querySelector('main tbody [title=\"{long_topic}\"]')"
    assert page.js(f"{shown}.getBoundingClientRect().width") < 400
    assert page.js(f"{shown}.scrollWidth > {shown}.clientWidth")


def test_a_phone_shows_columns_beside_a_long_name(browser: Browser, url: str, long_topic: str) -> None:
    for place in ("topics", "cluster"):
        # A page of its own: another place of the same page shows the table of the one before for a moment.
        phone = browser.page(390, 780)
        phone.open(f"{url}/#/{place}")
        cell = f"document.querySelector('main tbody [title=\"{long_topic}\"]')?.closest('tr')?.cells[1]"
        phone.until(f"{cell}?.getBoundingClientRect().right < 390")
        phone.until("document.documentElement.scrollWidth <= 390")
        phone.close()


def test_a_phone_shows_values_of_messages(browser: Browser, url: str, brokers: Cluster, topic: str) -> None:
    produce(brokers.bootstrap, topic, [b"a value of some length to read"])
    phone = browser.page(390, 780)
    phone.open(f"{url}/#/topics/{topic}/messages")
    phone.until("document.querySelector('main tbody td.value')")
    value = "document.querySelector('main tbody td.value').getBoundingClientRect()"
    assert phone.js(f"{value}.width") > 150
    assert phone.js(f"{value}.right") <= 390
    phone.until("/^\\d:0$/.test(document.querySelector('main tbody th').innerText)")
    phone.close()


def test_headers_leave_room_for_values(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    async def send() -> None:
        async with Producer(brokers.bootstrap) as producer:
            await producer.send(topic, b"v" * 300, headers={"traceparent": "0" * 55, "more": "x" * 90})

    asyncio.run(send())
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until("document.querySelector('main tbody td.value')")
    width = "document.querySelector('main tbody td.{}').getBoundingClientRect().width"
    assert page.js(width.format("value")) > 1.5 * page.js(width.format("headers"))


def test_stats_are_in_full_rows(page: Page, url: str) -> None:
    page.open(url)
    page.until("document.querySelectorAll('.stat').length === 8")
    tops = "[...document.querySelectorAll('.stat')].map(e => e.getBoundingClientRect().top)"
    found = page.js(tops)
    assert sorted(found.count(top) for top in set(found)) in ([4, 4], [8])


def test_the_question_about_a_denial_is_one_row(page: Page, url: str) -> None:
    """A rule for other forms put its fields below each other, with a gap."""
    page.open(f"{url}/#/security")
    page.until("document.querySelector('form[aria-label=\"Why was this denied?\"]')")
    box = "document.querySelector('form[aria-label=\"Why was this denied?\"]').getBoundingClientRect()"
    assert page.js(f"{box}.height") < 130


def test_binary_rows_have_ascii_schema_ids_and_headers(
    page: Page, url: str, brokers: Cluster, topic: str
) -> None:
    async def send() -> None:
        async with Producer(brokers.bootstrap) as producer:
            value = b"\x00\x00\x00\x00\x2a\xff\x01order-of-ada and more\xfe"
            await producer.send(topic, value, headers={"kind": "made", "second": "x"})

    asyncio.run(send())
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until_text("order-of-ada", "main tbody td.value")
    text = page.text("main tbody tr")
    assert "00 00 00 00 2a ff 01" in text
    assert "schema 42?" in text
    ascii_ = "document.querySelector('main tbody .ascii').getBoundingClientRect()"
    cell = "document.querySelector('main tbody td.value').getBoundingClientRect()"
    assert page.js(f"{ascii_}.left + 60 < {cell}.right"), "the ASCII is cut off"
    assert "kind=made" in text
    assert "+1" in text
