"""Checks requirements of some commands; a Failure names the missing one and how to install it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from typing import Final

from penstock.cli.failure import Failure

__all__ = ["require_extra", "require_java"]

_JAVA_OLDEST: Final = 17
_INSTALL_JAVA: Final = "install it (apt install openjdk-17-jre-headless, or brew install openjdk@17)"


def require_extra(module: str, extra: str = "telemetry") -> None:
    """Raise a Failure if a module of an extra is missing."""
    if find_spec(module) is None:
        raise Failure(f"{module} is missing: pip install 'penstock[{extra}]'")


def require_java() -> None:
    """Raise a Failure if Spark would find no suitable Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none"
        raise Failure(f"Spark needs Java {_JAVA_OLDEST} or newer, and {where}: {_INSTALL_JAVA}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', output)
    if version is not None and int(version[1]) < _JAVA_OLDEST:
        raise Failure(f"Spark needs Java {_JAVA_OLDEST} or newer, and {java} is older: {_INSTALL_JAVA}")
