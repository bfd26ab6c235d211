"""Makes the pictures of the web console in docs/console, over a live cluster with invented traffic.

python3 -m tools.screenshots [FOLDER]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from penstock.cli.cluster.planner import plan_for_console
from penstock.client import Admin, Consumer, Producer, Record
from penstock.console.web.app import ConsoleSettings
from penstock.console.web.fleet_routes import Telemetry
from penstock.model.addresses import parse_bootstrap
from penstock.testing import cluster
from tests.console.browser import Browser, Page, chromium
from tests.console.fleet import telemetry_api
from tests.console.serving import serving
from tools.chromium import HOW_TO, find_chromium

__all__ = ["Traffic", "main"]

_FOLDER: Final = Path(__file__).parents[1] / "docs" / "console"
_TOPICS: Final = {"orders": 6, "payments": 3, "clickstream": 12, "users": 3, "orders.dead-letters": 1}
_PER_TURN: Final = {"orders": 20, "payments": 6, "clickstream": 120}
#: long enough for the plots to have some points
_WARM_UP_S: Final = 40.0
_TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_ROWS: Final = "document.querySelectorAll('main tbody tr').length > 5 && document.querySelector('.drawer')"


class Traffic:
    """Producers and consumers in a thread, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(20)

    async def _run(self) -> None:
        async with Admin(self._bootstrap) as admin:
            for name, partitions in _TOPICS.items():
                await admin.create_topic(name, partitions=partitions, replicas=3)
        parts = [self._produce(), self._consume("billing", "orders", "payments", 0.02)]
        parts.append(self._consume("analytics", "clickstream", "users", 0.0))
        tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _consume(self, group: str, first: str, second: str, pause_s: float) -> None:
        async with Consumer(self._bootstrap, first, second, group=group) as consumer:
            async for _ in consumer:
                await asyncio.sleep(pause_s)

    async def _produce(self) -> None:
        numbers = random.Random(7)
        async with Producer(self._bootstrap) as producer:
            n = 0
            while not self._ends.is_set():
                for topic, count in _PER_TURN.items():
                    batch = []
                    for _ in range(count):
                        n += 1
                        value = json.dumps(_order(n, numbers)).encode()
                        key = f"customer-{n % 50}".encode()
                        batch.append(Record(value=value, key=key, headers={"traceparent": _TRACE}))
                    await producer.send_batch(topic, batch)
                await producer.send("users", None, key=f"user-{n % 9}".encode())
                await asyncio.sleep(0.25)


def _order(n: int, numbers: random.Random) -> dict[str, object]:
    return {
        "order_id": 9007199254740993 + n,
        "customer": numbers.choice(["ada", "grace", "alan", "edsger"]),
        "total": round(numbers.random() * 200, 2),
        "items": [{"sku": f"A-{n % 97}", "quantity": n % 5 + 1}],
    }


def _fleet() -> dict[str, Any]:
    """Responses of the telemetry API: twelve hosts of eight GPUs, most of them busy, some with a finding."""
    numbers = random.Random(11)
    now = datetime.now(UTC)
    gpus, alerts = [], []
    for n in range(96):
        host, state = f"dgx-{n // 8 + 1:03}", "busy"
        share = min(1.0, max(0.03, numbers.gauss(0.82, 0.14)))
        findings: list[str] = []
        if n // 8 in (4, 9):
            state, share = "idle", 0.0
        if n in (21, 22, 61):
            state, share = "idle_occupied", 0.0
        if n == 78:
            state = "silent"
        if n in (5, 50):
            findings = ["hot"]
        gpu = {
            "gpu_id": f"GPU-{numbers.getrandbits(32):08x}",
            "hostname": host,
            "model": "NVIDIA H100 80GB HBM3",
            "workload": None if state == "idle" else f"train/llm-{n // 32 + 1}",
            "pod": None,
            "state": state,
            "findings": findings,
            "evidence": "0 % busy for 11 minutes with 70 GiB allocated" if state == "idle_occupied" else None,
            "gpu_util_percent": None if state == "silent" else round(100 * share, 1),
            "memory_used_share": 0.88 if state == "idle_occupied" else share * 0.9,
            "power_w": 90 + 590 * share,
            "temperature_c": (88 if findings else 40 + 30 * share),
        }
        gpus.append(gpu)
        if gpu["evidence"] or findings or state == "silent":
            alerts.append(_alert(gpu, now - timedelta(minutes=3 + n % 9)))
    counts = Counter(gpu["state"] for gpu in gpus)
    fleet = {"newest_sample": now.isoformat(), "gpus": counts, "total": len(gpus), "items": gpus}
    return {"/api/v1/fleet/now": fleet, "/api/v1/alerts": {"items": alerts, "next_cursor": None}}


def _alert(gpu: dict[str, Any], since: datetime) -> dict[str, Any]:
    rule = "hot" if gpu["findings"] else gpu["state"]
    texts = {
        "hot": ("88 °C, 21 °C above the GPUs of its host at the same power", "check fans and air flow"),
        "idle_occupied": (gpu["evidence"], "ask the owner of the workload, or stop it"),
        "silent": ("no sample for 4 minutes", "look at the exporter and the host"),
    }
    evidence, action = texts[rule]
    severity = "critical" if rule == "hot" else "warning"
    subject = {"subject": gpu["gpu_id"], "hostname": gpu["hostname"]}
    return {
        "rule": rule,
        **subject,
        "state": "open",
        "severity": severity,
        "since": since.isoformat(),
        "evidence": evidence,
        "action": action,
    }


def _open_message(page: Page) -> None:
    page.js("document.querySelectorAll('main tbody td')[8].click()")
    page.until("document.querySelector('.drawer pre')")


def _reassignment(browser: Browser, folder: Path) -> None:
    """A cluster whose last broker is new, with a move in progress and a plan."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with cluster(4, config={"min.insync.replicas": "1"}) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        places = {"orders": [[1, 2, 3], [2, 3, 1]] * 4, "payments": [[1, 2]] * 6, "archive": [[1]]}
        new = [NewTopic(name, len(own), replica_assignment=own) for name, own in places.items()]
        for future in admin.create_topics(new).values():
            future.result(60)
        asyncio.run(_large_messages(brokers.bootstrap, "orders", "archive"))
        bootstrap = parse_bootstrap(brokers.bootstrap)
        settings = ConsoleSettings(bootstrap=bootstrap, planner=plan_for_console, timeout_s=20.0)
        with serving(settings) as url:
            page = browser.page(1360, 1150)
            page.open(f"{url}/#/topics/archive/partitions")
            page.until("document.querySelector('[aria-label=\"Move partition 0\"]')?.checkVisibility()")
            page.js("document.querySelector('[aria-label=\"Move partition 0\"]').click()")
            page.click("Add a replica")
            page.type("Throttle per second and broker", "20 KiB")
            page.click("Move", "dialog footer button")
            page.until("!document.querySelector('dialog')")
            page.open(f"{url}/#/cluster/reassignment")
            page.until_text("archive-0", "main")
            page.click("Make a plan")
            page.until("document.querySelector('[aria-label=\"Planned moves\"]')?.dataset.rows > 1")
            page.screenshot(folder / "reassignment.png")


async def _large_messages(bootstrap: str, *topics: str) -> None:
    async with Producer(bootstrap) as producer:
        for topic in topics:
            for n in range(12):
                await producer.send(topic, random.Random(n).randbytes(400_000), key=str(n).encode())


def main(folder: Path) -> int:
    path = find_chromium()
    if path is None:
        print(HOW_TO, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        brokers = stack.enter_context(cluster(3))
        api, _ = stack.enter_context(telemetry_api(_fleet()))
        bootstrap = parse_bootstrap(brokers.bootstrap)
        settings = ConsoleSettings(bootstrap=bootstrap, telemetry=Telemetry(api, "s3cret"))
        url = stack.enter_context(serving(settings))
        browser = stack.enter_context(chromium(path))
        traffic = Traffic(brokers.bootstrap)
        light, dark = browser.page(1360, 860), browser.page(1360, 860, dark=True)
        phone = browser.page(390, 800)
        for page in (light, dark, phone):
            page.open(url)
        time.sleep(_WARM_UP_S)
        for page, name, place, ready in (
            (light, "overview", "overview", "document.querySelectorAll('.spark').length"),
            (dark, "messages", "topics/orders/messages", _ROWS),
            (light, "group", "groups/billing", "document.querySelectorAll('.stat').length"),
            (dark, "cluster", "cluster", "document.querySelectorAll('.map').length"),
            (dark, "metadata", "cluster/log", "document.querySelectorAll('.diffs li').length"),
            (light, "fleet", "fleet", "document.querySelectorAll('.fleet .tile').length"),
            (phone, "phone", "overview", "document.querySelectorAll('.stat').length"),
        ):
            page.open(f"{url}/#/{place}")
            page.until(ready)
            if name == "messages":
                _open_message(page)
            time.sleep(1.0)  # plots follow the size of their box
            page.screenshot(folder / f"{name}.png")
        traffic.stop()
        _reassignment(browser, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER))
