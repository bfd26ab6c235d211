"""The page about links in a browser, over two clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.client import Admin
from penstock.testing import broker
from penstock.testing.clusters import Cluster
from tests.broker.links.clusters import DEFAULTS, create, creates, link
from tests.console.browser import Page

pytestmark = pytest.mark.process


@pytest.fixture
def source() -> Iterator[str]:
    with broker(config=DEFAULTS) as running:
        create(running.bootstrap, "mirrored-orders", 2)
        yield running.bootstrap


def test_links_show_their_state_their_errors_and_their_partitions(
    page: Page, url: str, brokers: Cluster, source: str
) -> None:
    page.open(f"{url}/#/links")
    page.until_text("there are no links", "main tbody")
    link(brokers.bootstrap, source, topics="mirrored-*")
    link(brokers.bootstrap, "127.0.0.1:1", name="gone", paused="true")
    creates(brokers.bootstrap, "mirrored-orders")
    try:
        page.press("r")
        page.until_text("active", "main tbody")
        page.until_text("paused", "main tbody")
        assert page.nameless() == []
        page.js("document.querySelector('main tbody a[href=\"#/links/west\"]').click()")
        page.until_text("west", "main h1")
        page.until_text("Mirrored to", "main")
        page.until("document.querySelectorAll('main tbody tr').length === 2")
        page.until_text("mirroring", "main tbody")
        page.until_text("no broker reports an error", "main")
        page.until_text("bootstrap.servers", "main dl")
        assert page.nameless() == []
        page.js("location.hash = '#/links/nowhere'")
        page.until_text("there is no link nowhere", "main .note")
    finally:
        asyncio.run(_delete(brokers.bootstrap))


async def _delete(bootstrap: str) -> None:
    async with Admin(bootstrap, timeout=30) as admin:
        for name in ("west", "gone"):
            await admin.links.delete(name, force=True)
        await admin.delete_topic("mirrored-orders")
