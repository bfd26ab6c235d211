"""The schema registry in a browser: without one, subjects, versions, drafts, deletion, links, rights."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.registry.settings import registry_settings
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import produce
from tests.console.registry_server import Registry, registry_server
from tests.console.serving import serving

pytestmark = pytest.mark.process
ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
PRICE = {"name": "price", "type": "int"}


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as running:
        yield running


@pytest.fixture
def site(brokers: Cluster, registry: Registry) -> Iterator[str]:
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(brokers.bootstrap),
        timeout_s=10.0,
        registry=registry_settings({}, registry.url),
    )
    with serving(settings) as address:
        yield address


@pytest.fixture
def own(browser: Browser, site: str) -> Iterator[Page]:
    """A page of a console with a registry, without errors of its own at the end."""
    opened = browser.page()
    yield opened
    assert [line for line in opened.errors() if "Failed to load resource" not in line] == []
    assert opened.nameless() == []
    opened.close()


def test_a_console_without_a_registry_explains_how_to_configure_one(page: Page, url: str) -> None:
    page.open(f"{url}/#/schemas")
    page.until_text("penstock console --schema-registry http://127.0.0.1:8081", "main")
    page.until_text("--schema-registry-config", "main")
    assert "Register schema" not in page.text("main")


def test_from_a_topic_to_its_schema_and_to_a_new_version(
    own: Page, site: str, registry: Registry, topic: str
) -> None:
    own.open(f"{site}/#/topics/{topic}/schemas")
    own.until_text(f"there is no subject {topic}-key", "main")
    own.click("Register value schema")
    own.type("Schema", record(ID))
    own.click("Check compatibility")
    own.until_text("first version of the subject", "dialog")
    own.click("Register", "dialog button")
    own.until_text("1 version", "main")
    own.until_text('"name": "id"', "main pre")
    own.until_text(f"{topic} (value)", "main")
    # A draft that breaks consumers is explained, and not registered.
    own.click("Register version")
    own.type("Schema", record(ID, PRICE))
    own.click("Check compatibility")
    own.until_text("Not compatible (BACKWARD)", "dialog")
    own.until_text("READER_FIELD_MISSING_DEFAULT_VALUE: price", "dialog")
    assert list(registry.subjects[f"{topic}-value"]) == [1]
    own.type("Schema", record(ID, NOTE))
    own.click("Check compatibility")
    own.until_text("Compatible (BACKWARD).", "dialog")
    own.click("Register", "dialog button")
    own.until_text("2 versions", "main")
    own.click("What changed?")
    own.until_text('+       "name": "note",', "main .diff")


def test_a_message_leads_to_its_schema(
    own: Page, site: str, registry: Registry, topic: str, brokers: Cluster
) -> None:
    pytest.importorskip("fastavro")
    number = registry.add(f"{topic}-value", record(ID))
    produce(brokers.bootstrap, topic, [struct.pack(">bI", 0, number) + b"\x0a"])
    own.open(f"{site}/#/topics/{topic}/messages")
    own.until("document.querySelectorAll('main tbody td.value').length === 1")
    own.js("document.querySelector('main tbody td.value').click()")
    own.click(f"Avro, schema {number}", ".drawer a")
    own.until_text(f"Schema {number}", "main h1")
    own.click(f"{topic}-value version 1")
    own.until_text(f"{topic} (value)", "main")


def test_deletion_is_confirmed_twice(own: Page, site: str, registry: Registry) -> None:
    registry.add("orders-value", record(ID))
    own.open(f"{site}/#/schemas/orders-value")
    own.click("Delete subject")
    own.until_text("Type orders-value to confirm", "dialog")
    own.type("Type orders-value to confirm", "orders")
    own.click("Delete", "dialog button")
    own.until_text("the name does not match", "dialog")
    own.type("Type orders-value to confirm", "orders-value")
    own.click("Delete", "dialog button")
    own.until_text("This subject is deleted", "main")
    own.click("Delete permanently")
    own.until_text("can no longer be decoded", "dialog")
    own.type("Type orders-value to confirm", "orders-value")
    own.click("Delete", "dialog button")
    own.until_text("the registry has none", "main")
    assert registry.subjects == {}


def test_levels_of_all_and_of_a_subject(own: Page, site: str, registry: Registry) -> None:
    registry.add("orders-value", record(ID))
    own.open(f"{site}/#/schemas")
    own.until_text("Compatibility: BACKWARD", "main")
    own.click("Change")
    own.type("Level", "FULL")
    own.click("Save")
    own.until_text("Compatibility: FULL", "main")
    own.open(f"{site}/#/schemas/orders-value")
    own.until_text("FULL (of all subjects)", "main")
    own.click("Change")
    own.type("Level", "NONE")
    own.click("Save")
    own.wait(lambda: registry.levels == {"orders-value": "NONE"})
    own.until("![...document.querySelectorAll('dd')].some(e => e.innerText.includes('of all subjects'))")


def test_a_registry_that_fails_is_not_an_empty_one(browser: Browser, brokers: Cluster) -> None:
    """Unknown, refused and empty are three texts."""
    with registry_server() as registry:
        registry.user = "ada:right"
        bootstrap = parse_bootstrap(brokers.bootstrap)
        refused = registry_settings({"basic.auth.user.info": "ada:wr0ng"}, registry.url)
        gone = registry_settings({}, "http://127.0.0.1:1")
        empty = registry_settings({"basic.auth.user.info": "ada:right"}, registry.url)
        for settings, state in ((refused, "refused"), (gone, "unknown"), (empty, "empty")):
            with serving(ConsoleSettings(bootstrap=bootstrap, registry=settings, timeout_s=10.0)) as url:
                page = browser.page()
                page.open(f"{url}/#/schemas")
                page.until(f"document.querySelector('td.empty')?.dataset.state === '{state}'")
                assert "wr0ng" not in page.text()
                page.close()


def test_pages_for_reading_only_have_no_buttons(
    browser: Browser, brokers: Cluster, registry: Registry, topic: str
) -> None:
    registry.add(f"{topic}-value", record(ID))
    bootstrap = parse_bootstrap(brokers.bootstrap)
    settings = registry_settings({"read.only": "true"}, registry.url)
    with serving(ConsoleSettings(bootstrap=bootstrap, registry=settings, timeout_s=10.0)) as url:
        page = browser.page()
        pages = {
            "schemas": "1 subject",
            f"schemas/{topic}-value": "1 version",
            f"topics/{topic}/schemas": "Newest",
        }
        for path, ready in pages.items():
            page.open(f"{url}/#/{path}")
            page.until_text(ready, "main")
            for text in ("Register", "Change", "Delete"):
                buttons = "[...document.querySelectorAll('main .tab-body button, main .page-head button')]"
                found = page.js(f"{buttons}.filter(b => b.checkVisibility()).map(b => b.innerText)")
                shown = [name for name in found if text in name]
                allowed = ("Delete", "Delete records") if path.startswith("topics") else ()
                assert [name for name in shown if name not in allowed] == [], path
        page.close()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_a_subject_fits_a_phone_and_the_dark_theme(
    browser: Browser, site: str, registry: Registry, width: int, dark: bool
) -> None:
    subject = f"{'long.name.' * 12}Order-value"
    registry.add(subject, record(*({"name": f"field_{n}_{'x' * 60}", "type": "long"} for n in range(30))))
    page = browser.page(width, 800, dark=dark)
    for path, ready in (("schemas", "1 subject"), (f"schemas/{subject}", "field_29")):
        page.open(f"{site}/#/{path}")
        page.until_text(ready, "main")
        assert page.js("document.querySelector('main').scrollWidth <= innerWidth"), path
    page.close()
