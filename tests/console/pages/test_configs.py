"""Configs in a browser: a control for each type, human units, documentation; brokers with the same diff."""

from __future__ import annotations

import pytest

from tests.console.browser import Page

pytestmark = pytest.mark.process


def test_switches_lists_units_and_documentation(page: Page, url: str, topic: str) -> None:
    page.open(f"{url}/#/topics/{topic}/configs")
    # The rights of the user come after the configs.
    page.until("document.querySelector('[aria-label=\"retention.ms\"]')")
    assert page.js("document.querySelector('[aria-label=\"retention.ms\"]').value") == "7 d"
    assert page.js("document.querySelector('[aria-label=\"segment.bytes\"]').value") == "1 GiB"
    assert page.js("document.querySelector('[aria-label=preallocate]').getAttribute('role')") == "switch"
    assert page.js("document.querySelector('[aria-label=\"message.timestamp.type\"]').tagName") == "SELECT"
    policy = "document.querySelector('[aria-label=\"cleanup.policy\"]')"
    assert page.js(f"[...{policy}.querySelectorAll('input')].map(e => e.checked).join()") == "false,true"
    assert page.js("document.querySelectorAll('main tbody small').length") > 20
    assert page.nameless() == []
    page.js("document.querySelector('[aria-label=preallocate]').click()")
    page.js(f"{policy}.querySelector('input').click()")
    page.type("message.timestamp.type", "LogAppendTime")
    page.type("retention.ms", "36 h")
    page.click("Review 4 changes")
    for text in ("− 604800000 (7 d)", "+ 129600000 (36 h)", "+ true", "+ LogAppendTime", "+ delete,compact"):
        page.until_text(text, "dialog")
    page.click("Save")
    page.until("document.querySelectorAll('main tbody .pill.info').length === 4")
    assert page.js("document.querySelector('[aria-label=\"retention.ms\"]').value") == "36 h"


def test_configs_of_a_broker_are_changed_with_the_same_diff(page: Page, url: str) -> None:
    page.open(f"{url}/#/cluster")
    page.until("document.querySelectorAll('.broker-card').length === 3")
    page.click("Configs")
    page.type("Search configs", "log.cleaner.threads")
    page.until("document.querySelector('dialog [aria-label=\"log.cleaner.threads\"]')")
    page.type("log.cleaner.threads", "2")
    page.click("Review 1 change")
    page.until("document.querySelectorAll('dialog').length === 2")
    page.until("document.querySelectorAll('dialog')[1].innerText.includes('+ 2')")
    page.click("Save")
    page.until_text("broker", "dialog tbody .pill.info")


def test_units_are_exact_in_both_directions(page: Page, url: str) -> None:
    page.open(url)
    found = page.js("""import('/static/units.js').then(({ humane, plain }) => [
      humane("1001", "ms"), humane("90000", "ms"), humane("9223372036854775807", "ms"), humane("-1", "ms"),
      plain("1.5 h", "ms"), plain("2w", "ms"), plain("9007199254740993", "bytes"), plain("8 MB", "bytes"),
      plain("-1", "bytes"), plain("soon", "ms"), plain("5 apples", "bytes"), humane("7", undefined)])""")
    assert found == [
        *("1001 ms", "90 s", "9223372036854775807", "-1", "5400000", "1209600000"),
        *("9007199254740993", "8388608", "-1", None, None, "7"),
    ]


def test_quotas_are_whole_numbers(page: Page, url: str) -> None:
    page.open(f"{url}/#/quotas")
    page.click("Set quota")
    page.type("user", "steady")
    page.type("producer_byte_rate", "1 MiB")
    page.click("Save")
    page.until_text("1.0 MiB/s", "main tbody")
    page.click('Change the quota of {"user":"steady"}')
    page.until("document.querySelector('dialog')")
    assert "1 MiB" in page.js("[...document.querySelectorAll('dialog input')].map(e => e.value).join('|')")
    page.type("producer_byte_rate", "")
    page.click("Save")
    page.until("!document.querySelector('main tbody').innerText.includes('steady')")
    page.js("location.hash = '#/cluster/log'")
    page.type("Search changes", "steady")
    page.until_text("is 1048576", "main tbody")
    assert "e+06" not in page.text("main")
