"""Checks requirements of some commands; a Failure names the missing one and how to install it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.cli.failure import Failure
from penstock.model.installation import pip_install

__all__ = ["require_console", "require_extra", "require_java"]

_JAVA_OLDEST: Final = 17
_INSTALL_JAVA: Final = "install it (apt install openjdk-17-jre-headless, or brew install openjdk@17)"


def require_extra(module: str, extra: str = "telemetry") -> None:
    """Raise a Failure if a module of an extra is missing."""
    if find_spec(module) is None:
        raise Failure(f"{module} is missing: {pip_install(extra)}")


def require_console() -> None:
    """Raise a Failure if a library of the web console is missing."""
    require_extra("starlette", "console")
    require_extra("uvicorn", "console")
    _require_protobuf("console")


def require_schemas() -> None:
    """Raise a Failure if a library that reads messages by the schemas of a registry is missing."""
    require_extra("fastavro", "avro,protobuf")
    _require_protobuf("avro,protobuf")


def _require_protobuf(extra: str) -> None:
    # Other distributions may own parts of the namespace `google`; without any, it is not there at all.
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise Failure(f"protobuf is missing: {pip_install(extra)}")


def require_java() -> None:
    """Raise a Failure if Spark would find no suitable Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none"
        raise Failure(f"Spark needs Java {_JAVA_OLDEST} or newer, and {where}: {_INSTALL_JAVA}")
    version = re.search(r'(?:version |JAVA_VERSION=)"(\d+)', _version_of(Path(java)))
    if version is not None and int(version[1]) < _JAVA_OLDEST:
        raise Failure(f"Spark needs Java {_JAVA_OLDEST} or newer, and {java} is older: {_INSTALL_JAVA}")


def _version_of(java: Path) -> str:
    """A text with the version of Java, from the file of a JDK that has it: a JVM takes longer to start."""
    release = java.resolve().parents[1] / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    if "JAVA_VERSION=" in text:
        return text
    return subprocess.run([java, "-version"], capture_output=True, text=True).stderr
