"""Measures what ten open consoles cost the brokers of an idle cluster of three.

python3 -m tools.console_cost [--consoles 10] [--seconds 30]

Each console is a process of its own with one page in Chromium, so that nothing is shared between them: this
is the worst case, ten users of ten consoles. The cost is the CPU time of the brokers with open pages, less
that of the same brokers before. It prints one line and ends with code 1 if the cost is 5 % of a core or more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from penstock.cli.cluster.broker_home import homes_in
from penstock.client import Admin, Consumer, Producer
from tests.console.browser import chromium
from tools.chromium import HOW_TO, find_chromium

__all__ = ["main"]

_LIMIT: Final = 0.05
_PENSTOCK: Final = (sys.executable, "-m", "penstock")
_TOPICS: Final = 20
_PAGES: Final = ("overview", "topics", "groups", "cluster", "cluster/log")
_SETTLE_S: Final = 10.0


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    data = ("--data", str(folder))
    started = subprocess.run(
        [*_PENSTOCK, "cluster", "start", "--brokers", "3", "--port", "0", *data],
        check=True,
        capture_output=True,
        text=True,
    )
    try:
        yield started.stdout.split()[1]
    finally:
        subprocess.run([*_PENSTOCK, "cluster", "stop", *data], check=True, capture_output=True)


@contextmanager
def _console(folder: Path) -> Iterator[str]:
    command = [*_PENSTOCK, "console", "--data", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


async def _fill(bootstrap: str) -> None:
    """Topics with messages, and a group that has read some of them."""
    async with Admin(bootstrap) as admin:
        for n in range(_TOPICS):
            await admin.create_topic(f"topic-{n}", partitions=3, replicas=3)
    async with Producer(bootstrap) as producer:
        for n in range(_TOPICS):
            await producer.send(f"topic-{n}", b"value")
    async with Consumer(bootstrap, "topic-0", group="readers") as consumer:
        async for _ in consumer:
            return


def _cpu_s(folder: Path) -> float:
    """CPU seconds of all brokers so far."""
    ticks = 0
    for home in homes_in(folder):
        process = home.process()
        assert process is not None, f"broker {home.id} has ended"
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _share(folder: Path, seconds: float) -> float:
    before, began = _cpu_s(folder), time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(folder) - before) / (time.monotonic() - began)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)
    path = find_chromium()
    if path is None:
        print(HOW_TO, file=sys.stderr)
        return 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cost-"))) / "cluster"
        bootstrap = stack.enter_context(_cluster(folder))
        asyncio.run(_fill(bootstrap))
        time.sleep(_SETTLE_S)
        idle = _share(folder, options.seconds)
        browser = stack.enter_context(chromium(path))
        for n in range(options.consoles):
            url = stack.enter_context(_console(folder))
            page = browser.page()
            page.open(f"{url}/#/{_PAGES[n % len(_PAGES)]}")
            page.until("document.querySelector('.live.on')")
        time.sleep(_SETTLE_S)
        busy = _share(folder, options.seconds)
    cost = busy - idle
    print(
        f"{options.consoles} open consoles cost three brokers {cost:.1%} of a core "
        f"({busy:.1%} with them, {idle:.1%} without)"
    )
    return 0 if cost < _LIMIT else 1


if __name__ == "__main__":
    # A terminated run ends its processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
