"""Makes a picture of every page of the web console in each state: docs/console/gallery.

python3 -m tools.gallery FOLDER

The states are light, dark, phone, an outage of two of three brokers, a user without rights, 10,000 topics.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from penstock.cli.cluster.planner import plan_for_console
from penstock.client import Admin, Producer
from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.net.client_security import ClientSecurity, client_security
from penstock.registry.settings import registry_settings
from penstock.testing import broker, cluster
from tests.console.browser import Browser, Page, chromium
from tests.console.registry_server import Registry, registry_server
from tests.console.serving import serving
from tools.chromium import HOW_TO, find_chromium
from tools.screenshots import Traffic

__all__ = ["main"]

_TOPICS: Final = 10_000
_LONG: Final = "a-topic-with-a-very-long-name." + "of-many-parts." * 12 + "end"
_PAGES: Final = {
    "overview": "overview",
    "topics": "topics",
    "messages": "topics/orders/messages",
    "binary": "topics/binary/messages",
    "partitions": "topics/orders/partitions",
    "configs": "topics/orders/configs",
    "groups": "groups",
    "group": "groups/billing",
    "topology": "topology",
    "cluster": "cluster",
    "reassignment": "cluster/reassignment",
    "metadata": "cluster/log",
    "transactions": "transactions",
    "schemas": "schemas",
    "schema": "schemas/orders-value",
    "security": "security",
    "quotas": "quotas",
}
#: pages that differ with 10,000 topics
_MANY: Final = ("overview", "topics", "cluster", "reassignment", "metadata", "topology", "groups")
_FIELDS: Final = (("order_id", "long"), ("customer", "string"), ("total", "double"))
_WARM_UP_S: Final = 15.0
_SETTLE_S: Final = 2.5
_QUALITY: Final = 42
_ACLS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


class _Gallery:
    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder

    def shoot(self, state: str, url: str, page: Page, names: tuple[str, ...] = tuple(_PAGES)) -> None:
        for name in names:
            page.js(f"location.hash = '#/{_PAGES[name]}'")
            time.sleep(_SETTLE_S)
            options = {"format": "webp", "quality": _QUALITY}
            data = page.call("Page.captureScreenshot", **options)["data"]
            (self._folder / f"{state}-{name}.webp").write_bytes(base64.b64decode(data))
        print(f"{state}: {len(names)} pictures", flush=True)

    def page(self, url: str, *, dark: bool = False, phone: bool = False) -> Page:
        page = self._browser.page(*((390, 780) if phone else (1180, 740)), dark=dark)
        page.open(url)
        return page


async def _fill(bootstrap: str) -> None:
    """Topics that are hard to show: a long name, and messages that are no text."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(_LONG, partitions=1, replicas=3)
        await admin.create_topic("binary", partitions=1, replicas=3)
    async with Producer(bootstrap) as producer:
        for n in range(8):
            await producer.send(
                "binary", bytes(range(n, n + 40)) + b"order-of-ada\xff", headers={"kind": "x"}
            )


def _schemas(stack: ExitStack) -> Registry:
    """A registry with a subject of three versions, and one of another kind."""
    registry = stack.enter_context(registry_server())
    for count in range(1, len(_FIELDS) + 1):
        fields = [{"name": name, "type": kind} for name, kind in _FIELDS[:count]]
        registry.add("orders-value", json.dumps({"type": "record", "name": "Order", "fields": fields}))
    registry.add("binary-value", '{"type": "object"}', "JSON")
    return registry


def _three_brokers(gallery: _Gallery, stack: ExitStack) -> None:
    brokers = stack.enter_context(cluster(3))
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(brokers.bootstrap),
        timeout_s=10.0,
        planner=plan_for_console,
        registry=registry_settings({}, _schemas(stack).url),
    )
    url = stack.enter_context(serving(settings))
    traffic = Traffic(brokers.bootstrap)
    asyncio.run(_fill(brokers.bootstrap))
    light = gallery.page(url)
    time.sleep(_WARM_UP_S)
    gallery.shoot("light", url, light)
    gallery.shoot("dark", url, gallery.page(url, dark=True))
    gallery.shoot("phone", url, gallery.page(url, phone=True))
    traffic.stop()
    brokers.kill(2)
    brokers.kill(3)
    time.sleep(2 * _SETTLE_S)
    gallery.shoot("outage", url, light)


def _no_rights(gallery: _Gallery, stack: ExitStack) -> None:
    running = stack.enter_context(broker(secure=True, config=_ACLS))
    config = running.client_config

    def login(user: str, password: str) -> ClientSecurity:
        own = {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.truststore.certificates": config["ssl.ca.pem"],
            "ssl.truststore.type": "PEM",
        }
        made = client_security("SASL_SSL", own.get, lambda: "n0nce", in_thread=asyncio.to_thread)
        assert made is not None
        return made

    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(running.bootstrap),
        login=login,
        timeout_s=20.0,
        planner=plan_for_console,
        registry=registry_settings({}, _schemas(stack).url),
    )
    url = stack.enter_context(serving(settings))
    admin = gallery.page(url)
    _log_in(admin, "admin", config["sasl.password"])
    admin.js("location.hash = '#/security'")
    admin.click("Set password")
    admin.type("User", "guest")
    admin.type("Password", "guest-secret")
    admin.click("Save")
    admin.until_text("guest", "main")
    guest = gallery.page(url)
    _log_in(guest, "guest", "guest-secret")
    gallery.shoot("no-rights", url, guest)


def _log_in(page: Page, user: str, password: str) -> None:
    page.type("User", user)
    page.type("Password", password)
    page.click("Log in")
    page.until("document.querySelector('nav')")


def _many_topics(gallery: _Gallery, stack: ExitStack) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    running = stack.enter_context(broker(config={"penstock.memory": "true"}))
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for first in range(0, _TOPICS, 500):
        new = [NewTopic(f"topic-{n:05}", 1, 1) for n in range(first, first + 500)]
        for future in admin.create_topics(new).values():
            future.result(60)
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(running.bootstrap), timeout_s=20.0, planner=plan_for_console
    )
    url = stack.enter_context(serving(settings))
    page = gallery.page(url)
    time.sleep(_WARM_UP_S)
    gallery.shoot("many", url, page, _MANY)


def main(folder: Path) -> int:
    path = find_chromium()
    if path is None:
        print(HOW_TO, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for part in (_three_brokers, _no_rights, _many_topics):
        with ExitStack() as stack:
            part(_Gallery(stack.enter_context(chromium(path)), folder), stack)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m tools.gallery FOLDER")
    sys.exit(main(Path(sys.argv[1])))
