"""Groups in a browser: consumer groups (KIP-848) and share groups, lag over time, reset after a preview."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import Consumer
from penstock.testing.clusters import Cluster
from tests.console.browser import Page
from tests.console.pages.conftest import produce
from tests.console.share_members import working

pytestmark = pytest.mark.process


def lag_is(lag: int) -> str:
    return f"[...document.querySelectorAll('.stat')].some(s => /Lag\\s*{lag}\\b/.test(s.innerText))"


def reset_to_the_beginning(page: Page, lag: int) -> None:
    """Preview a reset, look at it, and save it."""
    page.click("Reset offsets")
    page.click("Preview")
    page.until("[...document.querySelectorAll('dialog button')].some(b => b.innerText.startsWith('Reset '))")
    page.until_text("Then", "dialog")
    page.js(
        "[...document.querySelectorAll('dialog button')].find(b => b.innerText.startsWith('Reset ')).click()"
    )
    page.until("!document.querySelector('dialog')")
    page.until(lag_is(lag))


def test_a_group_is_reset_after_a_preview(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    """A consumer group (KIP-848); classic groups differ in their data only (web/test_group_routes)."""
    produce(brokers.bootstrap, topic, [b"v"] * 9)
    group = f"group-{topic}"

    async def read_all() -> None:
        async with Consumer(brokers.bootstrap, topic, group=group, protocol="consumer") as consumer:
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen == 9:
                    return

    asyncio.run(read_all())
    page.open(f"{url}/#/groups")
    page.type("Search groups", group)
    page.until_text(group, "main tbody")
    page.click(group)
    page.until_text("Empty", "main .stats")
    page.until_text("consumer", "main .stats")
    reset_to_the_beginning(page, 9)
    # Lag over time: a point of each sample.
    page.until("document.querySelector('.chart path.line')")
    assert page.nameless() == []


def test_a_share_group_with_its_members_lag_and_reset(
    page: Page, url: str, brokers: Cluster, topic: str
) -> None:
    produce(brokers.bootstrap, topic, [b"v"] * 9)
    group = f"queue-{topic}"
    with working(brokers.bootstrap, topic, group) as seen:
        page.wait(seen.is_set)
        page.open(f"{url}/#/groups")
        page.type("Type", "share")
        page.until_text(group, "main tbody")
        assert page.js("document.querySelectorAll('main tbody tr').length") == 1
        page.click(group)
        page.until_text("Stable", "main .stats")
        page.until_text("share", "main .stats")
        page.until_text("worker-1", "[aria-label=Members]")
        page.until_text("Start offset", "[aria-label=Offsets]")
        page.click("Reset offsets")
        page.until_text("The group has members", "dialog")
        page.press("Escape")
    page.until_text("Empty", "main .stats")
    page.until(lag_is(5))
    reset_to_the_beginning(page, 9)
    page.until("document.querySelector('.chart path.line')")
    assert page.nameless() == []
