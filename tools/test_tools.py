"""Installs what skipped tests need, as far as this machine allows: Debian's packages, as root.

    python3 -m tools.test_tools

Packages that are installed already, and machines without apt-get or root, are left alone, with one line each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from tools.chromium import find_chromium

__all__ = ["main", "missing_packages"]

#: the package that has each program
_PACKAGES: Final = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "java": "default-jre-headless",
    "npm": "npm",
    "cc": "build-essential",
}
_LIMIT_S: Final = 900


def missing_packages() -> list[str]:
    """The packages of the programs that are not on the path."""
    found = {package for program, package in _PACKAGES.items() if shutil.which(program) is None}
    return sorted(found | (set() if find_chromium() else {"chromium"}))


def main() -> None:
    missing = missing_packages()
    if not missing:
        print("all programs for the tests are installed")
        return
    command = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"this needs root and apt-get: {command}")
        return
    print(f"installing {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(["bash", "-c", command], env=environment, timeout=_LIMIT_S, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        print(f"not installed within {_LIMIT_S} s")
    if left := missing_packages():
        print(f"not installed: {' '.join(left)}")


if __name__ == "__main__":
    main()
