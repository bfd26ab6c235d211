"""Unknown, loading, refused and empty are four states with four texts, and none of them is a zero."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from penstock.client import Admin, Consumer
from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.testing import cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import QUICK, log_in, produce
from tests.console.serving import serving

pytestmark = pytest.mark.process
#: requests of a page that never get a response, so that it stays as it is while it is loading
NO_RESPONSES = "window.fetch = () => new Promise(() => {})"


async def _commit(bootstrap: str, topic: str, group: str) -> None:
    async with Consumer(bootstrap, topic, group=group, auto_commit=False) as consumer:
        async for message in consumer:
            await consumer.commit(message)
            return


@pytest.fixture(scope="module")
def outage(browser: Browser) -> Iterator[tuple[Page, str]]:
    """A console that was opened after two of three brokers had failed, with groups that have lag."""
    with cluster(3, config=QUICK) as brokers:

        async def make() -> None:
            async with Admin(brokers.bootstrap) as admin:
                await admin.create_topic("orders", partitions=3, replicas=1)

        asyncio.run(make())
        produce(brokers.bootstrap, "orders", [b"v"] * 30)
        asyncio.run(_commit(brokers.bootstrap, "orders", "billing"))
        brokers.kill(2)
        brokers.kill(3)
        settings = ConsoleSettings(bootstrap=parse_bootstrap(brokers.bootstrap), timeout_s=2.0)
        with serving(settings) as url:
            page = browser.page()
            page.open(url)
            yield page, url
            page.close()


def test_an_outage_is_unknown_and_not_zero(outage: tuple[Page, str]) -> None:
    page, _ = outage
    page.until("document.querySelectorAll('.stat').length")
    page.until("document.querySelector('[aria-label=\"Groups with lag\"] td[data-state=unknown]')")
    assert "no group has lag" not in page.text("main")
    groups, lag = (
        page.js(
            f"[...document.querySelectorAll('.stat')].find(s => s.innerText.startsWith('{name}')).innerText"
        )
        for name in ("Groups", "Lag")
    )
    assert groups.splitlines()[1].startswith(("–", "≥"))
    assert lag.splitlines()[1].startswith(("–", "≥"))
    link = "[...document.querySelectorAll('nav a')].find(a => a.innerText.startsWith('Groups')).innerText"
    page.until(f"{link}.split(/\\s+/).length > 1")
    assert page.js(link).split()[1][0] in "–≥"


@pytest.mark.parametrize("place", ["groups", "transactions"])
def test_lists_in_an_outage_name_the_missing_data(outage: tuple[Page, str], place: str) -> None:
    page, _ = outage
    page.js(f"location.hash = '#/{place}'")
    page.until("document.querySelector('main td[data-state=unknown]')")
    assert "matches" not in page.text("main tbody")
    assert " 0 " not in page.text(".page-head")
    # Once, and in words.
    assert "Errno" not in page.text("main")
    assert "broker 3: broker 3" not in page.text("main")


def test_a_map_in_an_outage_is_there_at_once(outage: tuple[Page, str]) -> None:
    """It was loading for as long as the request for moves waited for a controller."""
    page, _ = outage
    page.js("location.hash = '#/topics'")
    page.until_text("orders", "main tbody")
    held = "window.fetch = ((real) => (p, o) => (p.includes('moves') ? new Promise(() => {}) : real(p, o)))"
    page.js(f"{held}(window.fetch)")
    page.js("location.hash = '#/cluster'")
    page.until("document.querySelectorAll('.broker-card').length === 3")
    page.until("document.querySelector('.map .cell')")
    page.until("document.querySelector('[aria-label=Moves] td[data-state=loading]')")


def test_a_drawing_in_an_outage_names_the_missing_data(outage: tuple[Page, str]) -> None:
    """It said "3 topics, 0 groups"."""
    page, _ = outage
    page.js("location.hash = '#/topology'")
    # The broker that is left lists its own groups.
    known = "/groups not known|at least \\d+ group/.test(document.querySelector('.page-head').innerText)"
    page.until(known)
    assert " 0 groups" not in page.text("main")
    assert "Errno" not in page.text("main")


def test_a_user_without_rights_reads_refused_and_not_empty(
    browser: Browser, secured: tuple[str, str]
) -> None:
    url, password = secured
    admin = browser.page()
    log_in(admin, url, "admin", password)
    admin.until_text("is healthy", "main")
    admin.js("location.hash = '#/security'")
    admin.click("Set password")
    admin.type("User", "guest")
    admin.type("Password", "gu3st-pw")
    admin.click("Save")
    admin.until_text("guest", "[aria-label=Users] tbody")
    guest = browser.page()
    log_in(guest, url, "guest", "gu3st-pw")
    guest.until_text("guest", "header")
    for place, card in (
        ("security", "[aria-label=ACLs]"),
        ("security", "[aria-label=Users]"),
        ("quotas", "[aria-label=Quotas]"),
    ):
        guest.js(f"location.hash = '#/{place}'")
        guest.until(f"document.querySelector({json.dumps(card)})?.querySelector('td[data-state=refused]')")
        text = guest.text(f"{card} tbody")
        assert "not allowed: " in text
        assert "there are no" not in text
        assert "no quota is set" not in text
    assert "AUTHORIZATION_FAILED" not in guest.text()
    _sees_no_zero(guest)
    for page in (admin, guest):
        page.close()


def _sees_no_zero(guest: Page) -> None:
    """Brokers leave out what a user may not describe: "Topics 0" and a critical alert were shown."""
    guest.js("location.hash = '#/overview'")
    guest.until("document.querySelectorAll('.stat').length === 8")
    guest.until("document.querySelector('[aria-label=\"Active alerts\"] td[data-state=refused]')")
    numbers = guest.js("[...document.querySelectorAll('.stat .value')].map(e => e.innerText)")
    assert [n for n in numbers if n.startswith("0")] == [], numbers
    assert "all have a leader" not in guest.text("main")
    for place, title in (
        ("topics", "Topics"),
        ("groups", "Groups"),
        ("topology", "Topology"),
        ("cluster", "Cluster"),
        ("cluster/log", "Metadata log"),
    ):
        guest.js(f"location.hash = '#/{place}'")
        guest.until_text(title, "main h1")
        guest.until("document.querySelector('main [data-state=refused]')")
        head = guest.js("[...document.querySelectorAll('main .page-head')].map(e => e.innerText).join(' ')")
        assert " 0 " not in f" {head} ".replace("\n", " "), (place, head)
        assert "not known: the quorum" not in guest.text("main")


@pytest.mark.parametrize(
    ("place", "tables"),
    [
        ("overview", 4),
        ("topics", 1),
        ("topics/TOPIC/partitions", 1),
        ("topics/TOPIC/configs", 1),
        ("topics/TOPIC/groups", 1),
        ("topics/TOPIC/messages", 1),
        ("groups", 1),
        ("groups/g", 2),
        ("cluster", 2),
        ("cluster/reassignment", 2),
        ("cluster/log", 1),
        ("transactions", 1),
        ("security", 2),
        ("quotas", 1),
    ],
)
def test_a_loading_page_is_marked(page: Page, url: str, topic: str, place: str, tables: int) -> None:
    page.open(f"{url}/#/overview" if place != "overview" else f"{url}/#/topics")
    page.until_text("healthy" if place != "overview" else "Create topic", "main")
    page.js(NO_RESPONSES)
    page.js("document.querySelector('main').replaceChildren()")
    page.js(f"location.hash = '#/{place.replace('TOPIC', topic)}'")
    page.until(f"document.querySelectorAll('main td[data-state=loading]').length === {tables}")
    text = page.text("main")
    for wrong in ("matches", "no quota", "there are no", "no broker has", "0 groups", "0 topics", "no group"):
        assert wrong not in text, text


def test_an_empty_list_is_shown_as_empty(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/groups")
    page.until_text("no group has committed an offset in this topic", "main td[data-state=empty]")


def test_a_topic_that_does_not_exist_has_no_buttons(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/partitions")
    page.until_text("Delete", ".page-head")
    page.js("location.hash = '#/topics/never-made/messages'")
    page.until_text("There is no topic never-made", "main .note")
    shown = page.text("main")
    assert "Delete" not in shown
    assert "Produce" not in shown
    assert "UNKNOWN_TOPIC" not in shown
    page.js("location.hash = '#/groups/never-made'")
    page.until_text("never-made", "main .note")
    assert "Delete" not in page.text(".page-head")


def test_an_axis_has_three_different_numbers(page: Page, url: str) -> None:
    page.open(url)
    tops = "[0, 0.3, 1, 3, 7, 9, 600, 1023, 1025, 5e6].map((n) => niceTop(n, { whole: true, base: 1024 }))"
    labels = f"{tops}.map((top) => [0, top / 2, top].map(bytes))"
    found = page.js(
        "Promise.all([import('/static/plots.js'), import('/static/dom.js')])"
        f".then(([{{ niceTop }}, {{ bytes }}]) => {labels})"
    )
    assert [len(set(ticks)) for ticks in found] == [3] * 10, found
    assert found[0] == ["0 B", "1 B", "2 B"]


def test_a_banner_has_no_pill(page: Page, url: str) -> None:
    page.open(url)
    page.until("document.querySelector('.health strong')")
    assert page.js("document.querySelectorAll('main .health .pill').length") == 0
