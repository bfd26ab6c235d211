"""The topology in a browser: a drawing that leads to its topics and groups, a table, phone and dark theme."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import Consumer
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import produce

pytestmark = pytest.mark.process


def read_one(bootstrap: str, topic: str, group: str) -> None:
    async def read() -> None:
        async with Consumer(bootstrap, topic, group=group, reset="earliest") as consumer:
            async for message in consumer:
                await consumer.commit(message)
                return

    asyncio.run(read())


def test_a_drawing_of_a_topic_with_its_clients(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    group = f"readers of {topic}"
    produce(brokers.bootstrap, topic, [b"v"] * 9)
    read_one(brokers.bootstrap, topic, group)
    page.open(f"{url}/#/topology?q={topic}")
    page.until(f"document.querySelector('svg a.node[aria-label=\"topic {topic}\"]')")
    page.until(f"document.querySelector('svg a.node[aria-label=\"group {group}\"]')")
    page.until("document.querySelectorAll('svg .node.producer').length === 1")
    page.until("document.querySelectorAll('svg .edge').length === 2")
    page.until_text("1 topic, 1 group, 1 producer", "main")
    page.until_text("idempotent producer", "main table")
    page.until_text("consumer group", "main table")
    page.until_text("no member", "main table")
    assert page.nameless() == []
    # The edges of the topic are marked when it has the focus.
    page.js(f"document.querySelector('svg a.node[aria-label=\"topic {topic}\"]').focus()")
    page.until("document.querySelectorAll('svg .edge.lit').length === 2")
    page.js(
        f"document.querySelector('svg a.node[aria-label=\"group {group}\"]')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    page.until_text(group, "main h1")


def test_a_name_that_nothing_has_is_an_empty_drawing(page: Page, url: str) -> None:
    page.open(f"{url}/#/topology")
    page.until("document.querySelector('main h1')")
    page.type("Search topics and groups", "no-such-name")
    page.until("document.querySelector('.topology [data-state=empty]')")
    page.until_text("0 topics, 0 groups, 0 producers", "main")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_drawing_scrolls_in_its_box(
    browser: Browser, url: str, brokers: Cluster, topic: str, width: int, dark: bool
) -> None:
    produce(brokers.bootstrap, topic, [b"v"])
    page = browser.page(width, 800, dark=dark)
    page.open(f"{url}/#/topology?q={topic}")
    page.until("document.querySelector('svg .edge')")
    assert page.js("document.querySelector('main').scrollWidth <= innerWidth")
    # All three columns are visible without scrolling.
    assert page.js(
        "document.querySelector('.topology').scrollWidth <= document.querySelector('.topology').clientWidth"
    )
    colours = "getComputedStyle(document.querySelector('svg .node rect')).fill"
    text = "getComputedStyle(document.querySelector('svg .node text')).fill"
    assert page.js(f"{colours} !== {text}")
    page.close()
