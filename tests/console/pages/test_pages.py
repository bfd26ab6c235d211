"""Every page in a real Chromium, over a live cluster of three brokers."""

from __future__ import annotations

import json
from itertools import count
from typing import ClassVar

import pytest

from penstock.console.web.app import ConsoleSettings
from penstock.console.web.fault_routes import LocalBroker
from penstock.console.web.fleet_routes import Telemetry
from penstock.model.addresses import parse_bootstrap
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.fleet import telemetry_api
from tests.console.pages.conftest import produce
from tests.console.serving import serving

pytestmark = pytest.mark.process

_names = count()
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e"


def test_the_overview_explains_the_health(page: Page, url: str) -> None:
    page.open(url)
    page.until_text("The cluster is healthy", "main")
    page.until_text("Broker 3", "main")
    page.until("document.querySelector('.live.on')")
    assert page.nameless() == []


def test_a_topic_is_created_changed_and_deleted(page: Page, url: str) -> None:
    name = f"made-{next(_names)}"
    page.open(f"{url}/#/topics")
    page.click("Create topic")
    page.type("Name", name)
    page.type("Partitions", "2")
    page.click("Create")
    page.until_text("no message matches", "main")
    page.click("Configs")
    page.type("Search configs", "retention.ms")
    page.type("retention.ms", "1000")
    page.click("Review 1 change")
    page.until_text("+ 1000", "dialog")
    page.until_text("− 604800000", "dialog")
    page.click("Save")
    page.until_text("topic", "tbody .pill.info")
    page.click("Add partitions")
    page.type("Partitions in total", "4")
    page.click("Add")
    page.until("document.querySelectorAll('main tbody tr').length === 4")
    page.click("Delete")
    page.type(f"Type {name} to confirm", name)
    page.click("Delete", "dialog button")
    page.until(
        f"location.hash === '#/topics' && !document.querySelector('main').innerText.includes('{name}')"
    )


def test_messages_are_shown_as_they_are(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    big = json.dumps({"id": 9007199254740993, "html": HOSTILE}, ensure_ascii=False).encode()
    produce(brokers.bootstrap, topic, [big, None, b"\x00\xff\x01", HOSTILE.encode(), b"plain"])
    page.open(f"{url}/#/topics/{topic}/messages")
    page.until("document.querySelectorAll('main tbody tr').length === 5")
    assert page.js("document.title") == "Topics · Penstock"
    assert page.js("document.querySelectorAll('main img, main script').length") == 0
    assert "⟨U+202E⟩" in page.text("main")
    page.until_text("tombstone", "main tbody")
    page.type("Filter", "value.id = 9007199254740993")
    page.click("Read")
    page.until("document.querySelectorAll('main tbody td.value').length === 1")
    page.js("document.querySelector('main tbody td.value').click()")
    page.until_text('"id": 9007199254740993', ".drawer")
    assert page.nameless() == []
    page.type("Filter", "value =")
    page.click("Read")
    page.until_text("ends where", "main .note")


def test_a_live_tail_and_the_produce_form(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/messages?live=1")
    page.until_text("waiting for new messages", "main")
    page.click("Produce")
    page.type("Key", "k")
    page.type("Value", '{"n": 1}')
    page.click("Send")
    page.until_text("offset 0", "dialog")
    page.until_text('{ "n": 1 }', "main tbody")
    page.press("Escape")
    page.until("!document.querySelector('dialog')")
    page.click("Live")
    page.until("document.querySelector('[aria-pressed=false]')")


def test_the_map_of_replicas_and_the_keys(page: Page, url: str, topic: str) -> None:
    page.open(url)
    page.until_text("healthy", "main")
    page.press("g")
    page.press("c")
    page.until_text("Map of replicas", "main")
    page.type("Topics on the map", topic)
    page.until("document.querySelectorAll('.map tbody tr').length === 3")
    page.until("document.querySelectorAll('.map .cell.leader').length === 3")
    page.until("document.querySelectorAll('.map .cell.in').length === 6")
    assert page.nameless() == []
    page.press("Escape")
    page.press("?")
    page.until_text("next, previous row", "dialog")


def test_the_gpu_fleet(browser: Browser, brokers: Cluster) -> None:
    with telemetry_api() as (api, _):
        settings = ConsoleSettings(
            bootstrap=parse_bootstrap(brokers.bootstrap), telemetry=Telemetry(api, "s3cret")
        )
        with serving(settings) as url:
            page = browser.page()
            page.open(f"{url}/#/fleet")
            page.until("document.querySelectorAll('.fleet .tile').length === 2")
            page.until("document.querySelectorAll('.fleet .tile.bad.found').length === 1")
            page.until_text("0 % busy with 70 GiB allocated", "main .alerts")
            assert page.nameless() == []
            page.click("GPU-2")
            page.until_text("allocated and idle", "main .stats")
            page.until_text("gpu_util (%)", "main")
            assert page.errors() == []
            page.close()


def test_fault_buttons_are_for_development_only(browser: Browser, brokers: Cluster, url: str) -> None:
    class Local:
        done: ClassVar[list[tuple[int, str]]] = []

        def brokers(self) -> dict[int, LocalBroker]:
            paused = LocalBroker("paused", ("resume",))
            return {1: LocalBroker("running", ("cut off", "kill")), 2: paused, 3: LocalBroker("stopped", ())}

        async def act(self, broker: int, fault: str) -> None:
            self.done.append((broker, fault))

    settings = ConsoleSettings(bootstrap=parse_bootstrap(brokers.bootstrap), faults=Local())
    with serving(settings) as own:
        page = browser.page()
        page.open(f"{own}/#/cluster")
        page.until("document.querySelectorAll('.faults').length === 3")
        page.click("resume")
        page.wait(lambda: Local.done == [(2, "resume")])
        page.click("cut off")
        page.wait(lambda: Local.done[1:] == [(1, "cut off")])
        page.open(f"{url}/#/cluster")
        page.until("document.querySelectorAll('.broker-card').length === 3")
        assert page.js("document.querySelectorAll('.faults').length") == 0
        page.close()


def test_every_page_fits_a_phone_and_names_its_controls(page: Page, url: str, topic: str) -> None:
    page.resize(390, 800)
    page.open(url)
    own = [f"topics/{topic}/{part}" for part in ("messages", "partitions", "configs", "groups")]
    others = ["overview", "topics", "groups", "transactions", "security", "quotas"]
    others += ["cluster", "cluster/reassignment", "cluster/log"]
    for path in [*others, *own]:
        page.js(f"location.hash = '#/{path}'")
        page.until(f"location.hash === '#/{path}' && document.querySelector('main h1')")
        page.until("document.documentElement.scrollWidth <= innerWidth")
        assert page.js(_FITS), path
        assert page.nameless() == [], path


_FITS = "document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_contrast_of_text_is_enough(page: Page, url: str, theme: str) -> None:
    """WCAG AA: 4.5 between every colour of text and the grounds that it is used on."""
    page.open(url)
    page.js(f"document.documentElement.dataset.theme = '{theme}'")
    pairs = [
        (text, ground) for text in ("text", "muted", "accent") for ground in ("ground", "panel", "hover")
    ]
    pairs += [(level, f"{level}-soft") for level in ("good", "warn", "bad")]
    pairs += [(level, "panel") for level in ("good", "warn", "bad")]
    pairs += [("on-accent", "accent"), ("accent", "accent-soft"), ("panel", "bad"), ("text", "warn-soft")]
    found = {pair: page.js(f"({_CONTRAST})('--{pair[0]}', '--{pair[1]}')") for pair in pairs}
    assert {pair: value for pair, value in found.items() if value < 4.5} == {}


_CONTRAST = """(a, b) => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const digits = style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi);
    const [r, g, b] = digits.map(h => parseInt(h, 16) / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [light(a), light(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}"""


def test_a_plot_agrees_with_its_axis(page: Page, url: str) -> None:
    """The value at the top of the axis lies on the upper line of the grid, and 0 on the lower one."""
    page.open(url)
    found = page.js(_PLOT)
    assert found["line"] == [found["low"], found["high"]]


_PLOT = """(async () => {
  const { chart } = await import('/static/plots.js');
  const plot = chart({ label: 'x' });
  document.body.append(plot.node);
  plot.update([[0, 0], [1, 100]]);
  await new Promise(requestAnimationFrame);
  const grid = [...plot.node.querySelectorAll('line.grid')].map(l => Number(l.getAttribute('y1')));
  const ends = plot.node.querySelector('path.line').getAttribute('d').slice(1).split('L');
  plot.node.remove();
  return { line: ends.map(e => Number(e.split(',')[1])), low: Math.max(...grid), high: Math.min(...grid) };
})()"""


def test_a_killed_broker_is_seen_while_the_page_is_open(page: Page, url: str, brokers: Cluster) -> None:
    page.open(url)
    page.until_text("The cluster is healthy", "main")
    brokers.kill(3)
    try:
        page.until("!document.querySelector('main .health').innerText.includes('is healthy')")
        page.until_text("broker 3", "main .health")
        page.until_text("broker 3", "[aria-label='Active alerts'] tbody")
        # Before the broker comes back: one that is back before it is fenced has changed nothing.
        page.until_text("Broker 3 left the cluster", "main .events")
    finally:
        brokers.start(3)
    page.until_text("The cluster is healthy", "main")
    page.until_text("no alert is active", "[aria-label='Active alerts'] tbody")
