"""The tab of reassignments, and moves of one partition from the page of its topic, in a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.cluster.planner import plan_for_console
from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.testing import Cluster, cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import QUICK
from tests.console.serving import serving
from tests.testing.cluster_clients import CLIENT
from tests.testing.cluster_clients import produce as produce_to

pytestmark = pytest.mark.process
DIALOG_GONE = "!document.querySelector('dialog')"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """A cluster of its own: topics of other tests would make it even."""
    with cluster(3, config=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def planning(brokers: Cluster) -> Iterator[str]:
    """A console with a planner, as `penstock console` starts it."""
    bootstrap = parse_bootstrap(brokers.bootstrap)
    settings = ConsoleSettings(bootstrap=bootstrap, timeout_s=10.0, planner=plan_for_console)
    with serving(settings) as address:
        yield address


@pytest.fixture
def shown(browser: Browser, planning: str) -> Iterator[Page]:
    page = browser.page()
    page.open(planning)
    page.until_text("healthy", "main")
    yield page
    assert [line for line in page.errors() if "Failed to load resource" not in line] == []
    page.close()


def make_topic(brokers: Cluster, name: str, *replicas: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, **CLIENT})
    topic = NewTopic(name, len(replicas), replica_assignment=list(replicas))
    admin.create_topics([topic])[name].result(60)
    for index in range(len(replicas)):
        brokers.wait_for_leader(name, index)


def replicas(brokers: Cluster, topic: str, index: int = 0) -> list[int]:
    return brokers._partition(topic, index, lambda image: list(image.replicas)) or []


def test_a_plan_is_made_and_executed(shown: Page, planning: str, brokers: Cluster) -> None:
    make_topic(brokers, "uneven", *[[1]] * 30)
    shown.open(f"{planning}/#/cluster")
    shown.click("Reassignment", "nav.tabs a")
    shown.until_text("more replicas", "[aria-label='Balance of brokers']")
    shown.until_text("no partition is moving", "[aria-label='Moves in progress']")
    shown.until_text("no throttle is set", "[aria-label=Throttle]")
    shown.type("Topics that contain", "uneven")
    shown.click("Make a plan")
    shown.until("document.querySelector('[aria-label=\"Planned moves\"]')?.dataset.rows > 5")
    assert "→" in shown.text("[aria-label='Brokers before and after']")
    assert not shown.js("document.querySelector('[aria-label=Plan] .note')")
    assert "00" not in shown.text("[aria-label=Plan] > div:last-child").split("partition")[0]
    assert replicas(brokers, "uneven") == [1]
    saved = shown.js(
        "decodeURIComponent(document.querySelector('a[download]').href.split(',').slice(1).join())"
    )
    plan = json.loads(saved)
    assert (plan["version"], plan["partitions"][0]["topic"]) == (1, "uneven")
    shown.click("Execute plan")
    shown.type("Throttle per second and broker", "a lot")
    shown.click("Execute", "dialog button")
    shown.until_text("is not a rate", "dialog .errors")
    shown.type("Throttle per second and broker", "50 MiB")
    shown.click("Execute", "dialog button")
    shown.until(DIALOG_GONE)
    brokers.wait_until(
        lambda: all(
            replicas(brokers, each["topic"], each["partition"]) == each["replicas"]
            for each in plan["partitions"]
        )
    )
    shown.until_text("no partition is moving", "[aria-label='Moves in progress']")
    shown.until_text("no throttle is set", "[aria-label=Throttle]")


def test_a_move_is_seen_throttled_and_cancelled(shown: Page, planning: str, brokers: Cluster) -> None:
    make_topic(brokers, "by-hand", [1])
    produce_to(brokers, "by-hand", *[bytes(500_000)] * 6)
    shown.open(f"{planning}/#/topics/by-hand/partitions")
    shown.until("document.querySelector('[aria-label=\"Move partition 0\"]')?.checkVisibility()")
    shown.js("document.querySelector('[aria-label=\"Move partition 0\"]').click()")
    shown.until_text("No data is copied.", "dialog")
    shown.click("Add a replica")
    shown.until_text("is copied to broker 2.", "dialog")
    # A broker that is chosen twice changes places.
    shown.js(
        "(() => { const box = document.querySelector('dialog select'); box.value = '2';"
        " box.dispatchEvent(new Event('change')); })()"
    )
    assert shown.js("[...document.querySelectorAll('dialog select')].map(s => s.value).join()") == "2,1"
    shown.type("Throttle per second and broker", "1 B")
    shown.click("Move", "dialog footer button")
    shown.until(DIALOG_GONE)
    shown.click("Plan a reassignment of this topic")
    shown.until_text("by-hand-0", "[aria-label='Moves in progress']")
    assert shown.js("document.querySelector('[aria-label=Plan] input').value") == "by-hand"
    shown.until_text("0 of 1", "[aria-label='Moves in progress'] tbody")
    shown.until_text("It ends with them, also if this page is closed", "[aria-label=Throttle]")
    shown.until_text("brokers 1, 2, 3: 1 B/s out, 1 B/s in", "[aria-label=Throttle]")
    shown.click("Cancel all", "main button")
    shown.click("Cancel all moves", "dialog footer button")
    shown.until(DIALOG_GONE)
    shown.until_text("no partition is moving", "[aria-label='Moves in progress']")
    shown.until_text("no throttle is set", "[aria-label=Throttle]")
    assert replicas(brokers, "by-hand") == [1]


def test_an_impossible_drain_is_explained(shown: Page, planning: str, brokers: Cluster) -> None:
    make_topic(brokers, "everywhere", [1, 2, 3])
    shown.open(f"{planning}/#/cluster/reassignment")
    shown.until("document.querySelectorAll('[aria-label=\"Brokers to empty\"] input').length === 3")
    shown.js("document.querySelectorAll('[aria-label=\"Brokers to empty\"] input')[2].click()")
    shown.type("Topics that contain", "everywhere")
    shown.click("Make a plan")
    shown.until_text("1 partition, such as everywhere-0, cannot leave", "[aria-label=Plan]")
    shown.until_text("No partition can move.", "[aria-label=Plan]")


@pytest.mark.parametrize("dark", [False, True])
def test_a_plan_fits_a_phone(browser: Browser, planning: str, brokers: Cluster, dark: bool) -> None:
    name = f"narrow-{dark}-" + "of-many-parts." * 8
    make_topic(brokers, name, *[[1]] * 30)
    phone = browser.page(390, 800, dark=dark)
    phone.open(f"{planning}/#/cluster/reassignment?topics={name}")
    phone.until_text("than the mean", "[aria-label='Balance of brokers']")
    phone.click("Make a plan")
    phone.until("document.querySelector('[aria-label=\"Planned moves\"]')?.dataset.rows > 5")
    assert phone.js("document.documentElement.scrollWidth") <= 390
    main = "document.querySelector('main')"
    assert phone.js(f"{main}.scrollWidth <= {main}.clientWidth")
    for label in ("Planned moves", "Brokers before and after", "Balance of brokers"):
        box = f"document.querySelector('.table-box[aria-label=\"{label}\"]')"
        assert phone.js(f"{box}.scrollWidth <= {box}.clientWidth"), label
    assert phone.nameless() == []
    phone.close()


def test_a_refusal_and_an_outage_are_no_empty_lists(shown: Page, planning: str) -> None:
    """The answers of brokers without rights, and of none at all."""
    gap = {"state": "refused", "reason": "this user has no right to it in this cluster"}
    answer: dict[str, Any] = {
        "brokers": [],
        "spread": {"replicas": None, "leads": None, "size": None},
        "sizes_gap": None,
        "not_preferred": 0,
        "moves": None,
        "moves_gap": gap,
        "throttle": {"rates": None, "by_move": False, "ends_itself": False, "gap": gap},
        "followed": False,
        "plans": True,
    }
    shown.js(
        f"""(() => {{ const real = window.fetch; window.fetch = (path, options) =>
        (path === '/api/reassignment' ? Promise.resolve(new Response({json.dumps(json.dumps(answer))}))
        : real(path, options)); }})()"""
    )
    shown.js("location.hash = '#/cluster/reassignment'")
    shown.until_text("not allowed: ", "[aria-label='Moves in progress'] td[data-state=refused]")
    shown.until_text("not allowed: ", "[aria-label=Throttle] [data-state=refused]")
    failing = "window.fetch = () => Promise.reject(new Error('gone'))"
    shown.js(failing)
    shown.js("location.hash = '#/cluster'")
    shown.js("location.hash = '#/cluster/reassignment'")
    shown.until("document.querySelectorAll('main td[data-state=unknown]').length === 2")
    shown.until_text("not known: ", "[aria-label=Throttle] [data-state=unknown]")
