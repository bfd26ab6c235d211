"""Finds Chromium for the tests of the web console, or installs it where it may.

python3 -m tools.chromium

It installs Debian's package as root with CI=true. Elsewhere it prints one line with the remedy. The tests
skip what needs a browser; nothing fails here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

__all__ = ["HOW_TO", "find_chromium", "main", "may_install"]

HOW_TO: Final = "no Chromium is installed: apt-get install chromium, or set CHROMIUM to the path of one"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")
_LIMIT_S: Final = 400
_INSTALL: Final = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium"


def find_chromium() -> str | None:
    """The path of a Chromium: the one that `CHROMIUM` names, else the first on the path."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def may_install(environment: Mapping[str, str], is_root: bool, has_apt: bool) -> bool:
    return environment.get("CI") == "true" and is_root and has_apt


def main() -> None:
    if find_chromium() is not None:
        return
    if may_install(os.environ, os.geteuid() == 0, shutil.which("apt-get") is not None):
        print("installing Chromium for the tests of the web console", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            subprocess.run(
                ["bash", "-c", _INSTALL], env=environment, timeout=_LIMIT_S, stdout=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            print(f"Chromium was not installed within {_LIMIT_S} s")
    if find_chromium() is None:
        print(f"tests in a browser are skipped: {HOW_TO}", flush=True)


if __name__ == "__main__":
    main()
