"""Opens a page in the user's browser."""

from __future__ import annotations

import os
import sys
import threading
import time
import webbrowser
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

__all__ = ["can_open", "open_when_ready"]

_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 60.0


def can_open() -> bool:
    """Whether there is a person at a terminal, and a display: other machines have no graphical browser."""
    has_display = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return has_display and sys.stdout.isatty()


def open_when_ready(url: str) -> threading.Thread:
    """Open a page in a browser once its server responds, without waiting for it here."""

    def run() -> None:
        if _responds(url):
            webbrowser.open(url)

    thread = threading.Thread(target=run, name="open-page", daemon=True)
    thread.start()
    return thread


def _responds(url: str) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=_PATIENCE_S):
                return True
        except (URLError, OSError):
            time.sleep(_LOOK_S)
    return False
