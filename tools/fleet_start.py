"""Measures the seconds from the start of `make run` to live data on the page of the GPU fleet.

python3 -m tools.fleet_start [--no-browser] [--limit SECONDS]

It starts the demo as `make run` does, opens the address that the demo prints first, and waits until the page
shows GPUs with values. It prints one line and ends with code 1 if that took longer than the limit (30 s).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final
from urllib.request import urlopen

from tests.console.browser import chromium
from tools.chromium import HOW_TO, find_chromium

__all__ = ["main"]

_LIMIT_S: Final = 30.0
_PATIENCE_S: Final = 180.0
_LOOK_S: Final = 0.2
_TILES: Final = "document.querySelectorAll('.fleet .tile:not(.none)').length"


def _has_rows(url: str) -> bool:
    """Whether the console answers with GPUs that have values."""
    try:
        with urlopen(f"{url}/api/fleet", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
    except OSError:
        return False
    return any(gpu["gpu_util_percent"] is not None for gpu in found["items"])


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--no-browser", action="store_true", help="ask the console instead of a page in Chromium"
    )
    parser.add_argument("--limit", type=float, default=_LIMIT_S)
    options = parser.parse_args(arguments)
    path = None if options.no_browser else find_chromium()
    if path is None and not options.no_browser:
        print(HOW_TO, file=sys.stderr)
        return 1
    with ExitStack() as stack:
        # A person's browser runs already.
        page = None if path is None else stack.enter_context(chromium(path)).page()
        began = time.monotonic()
        command = [sys.executable, "-m", "penstock", "telemetry", "demo"]
        demo = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        try:
            assert demo.stdout is not None
            word, address = demo.stdout.readline().split()
            printed_s = time.monotonic() - began
            assert word == "console", "the first line has the address of the console"
            url = address.partition("/#")[0]
            is_live = _wait(lambda: _has_rows(url))
            rows_s = time.monotonic() - began
            if is_live and page is not None:
                page.open(address)
                page.until(f"{_TILES} > 0", _PATIENCE_S)
        finally:
            took_s = time.monotonic() - began
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=_PATIENCE_S)
    print(
        f"address after {printed_s:.1f} s, rows after {rows_s:.1f} s, GPUs on the page after {took_s:.1f} s"
    )
    return 0 if is_live and took_s <= options.limit else 1


if __name__ == "__main__":
    # A terminated run ends its processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
