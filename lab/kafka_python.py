"""kafka-python's integration tests, from its source distribution.

The distribution leaves out two modules that the tests import. `test/__init__.py` is empty; `test/service.py`
starts and watches Java processes, which never happens here because the broker is external, so names that fail
loudly when called are enough.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

from lab.home import built, command, lab_root, verify

VERSION = "3.0.12"
SDIST_SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"

SERVICE_MODULE = '''\
"""Stands in for the module that the source distribution lacks; the broker under test is external."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        """Nothing to start."""

    def close(self):
        """Nothing to stop."""


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("the tests may not start a broker of their own")
'''


def kafka_python_tests() -> Path:
    """The unpacked source tree, with `test` importable from it."""
    recipe = (VERSION, SDIST_SHA256, SERVICE_MODULE)
    return built(lab_root() / "kafka-python", recipe, _unpack)


def _unpack(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command([*pip, "--no-deps", "--no-binary", ":all:", f"kafka-python=={VERSION}"], folder)
    archive = next(folder.glob("*.tar.gz"))
    verify(archive, "sha256", SDIST_SHA256)
    prefix = f"kafka_python-{VERSION}/"
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            member.name = member.name.removeprefix(prefix)
            source.extract(member, folder, filter="data")
    (folder / "test" / "__init__.py").write_text("")
    (folder / "test" / "service.py").write_text(SERVICE_MODULE)
