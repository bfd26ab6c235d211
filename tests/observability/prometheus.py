"""Finds Prometheus: `promtool` and the server are in one package of Debian.

Tests use what is installed. As root with CI=true, the package is downloaded and unpacked into a temporary
directory, without installing a service. Elsewhere the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

__all__ = ["prometheus_binary"]

_DOWNLOAD_S = 120


@cache
def _unpacked() -> Path | None:
    if os.environ.get("CI") != "true" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    # `apt-get` and `dpkg` report their own errors; without the package the tests are skipped.
    home = Path(tempfile.gettempdir()) / f"penstock-prometheus-{os.getpid()}"
    home.mkdir(exist_ok=True)
    try:
        for command in (["apt-get", "-q", "download", "prometheus"], ["sh", "-c", "dpkg -x *.deb ."]):
            subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=_DOWNLOAD_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return home / "usr/bin"


def prometheus_binary(name: str) -> str:
    """The path of `promtool` or `prometheus`; skips the test if there is none."""
    found = shutil.which(name)
    if found is not None:
        return found
    unpacked = _unpacked()
    if unpacked is None or not (unpacked / name).exists():
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return str(unpacked / name)
