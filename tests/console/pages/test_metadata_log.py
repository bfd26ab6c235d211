"""The metadata log on the page of the cluster: timeline, search, difference between two moments."""

from __future__ import annotations

import pytest

from penstock.testing import broker
from tests.console.browser import Browser, Page
from tests.console.serving import serving

pytestmark = pytest.mark.process
_ADDED = "[...document.querySelectorAll('.diffs li')].filter(l => /added\\s+partition/.test(l.innerText))"


def test_a_new_topic_is_a_change_and_a_difference(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/cluster")
    page.click("Metadata log")
    page.type("Search changes", f"{topic}-")
    page.until("document.querySelectorAll('.timeline tbody tr').length === 3")
    page.type("Search changes", f"Topic {topic} ")
    page.until_text(f"Topic {topic} was created", ".timeline")
    # From the creation of the topic to its last partition: the partitions are the difference.
    page.js("document.querySelector('.timeline [name=from]').click()")
    page.until(f"({_ADDED}).length === 3")
    assert f"{topic}-2" in page.text(".diffs")
    page.until_text("+ 1", ".diffs")
    page.type("Search changes", "")
    page.type("Kind", "broker")
    page.until_text("Broker 3", ".timeline")
    # Reading the log makes no observer of the quorum.
    assert page.js("fetch('/api/overview').then(r => r.json()).then(o => o.quorum.observers)") == []
    assert page.nameless() == []


def test_the_log_is_hidden_without_a_listener_of_controllers(browser: Browser) -> None:
    with broker() as running, serving(running.bootstrap) as url:
        page = browser.page()
        page.open(f"{url}/#/cluster")
        page.until_text("Map of replicas", "main")
        found = page.js("fetch('/api/metadata').then(r => r.json())")
        assert found == {
            "available": False,
            "reason": "the brokers name no listener of the active controller",
        }
        assert "Metadata log" not in page.text("main")
        page.close()
