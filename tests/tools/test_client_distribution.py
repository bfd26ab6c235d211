"""`penstock-mq-client` has the clients and nothing of the broker, and works with four packages of others."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from penstock.testing import broker
from penstock.version import VERSION
from tools.client_distribution import DEPENDENCIES, NAME, as_toml, modules, project, write

ROOT = Path(__file__).parents[2]
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PROGRAM = """
import asyncio
import sys

sys.path[:0] = sys.argv[2:]
from penstock import Admin, Consumer, Producer, Queue
from penstock.client import errors, registry, serializers, two_phase  # imported by programs that use them


async def main(bootstrap):
    async with Admin(bootstrap) as admin:
        await admin.create_topic("slim")
        print(await admin.links.list())
    async with Producer(bootstrap, compression="zstd") as producer:
        await producer.send("slim", "1")
    async with Consumer(bootstrap, "slim", group="consumers") as consumer:
        print((await anext(consumer)).value)
    async with Queue(bootstrap, "slim", group="queues") as queue:
        print((await anext(queue)).value)


asyncio.run(main(sys.argv[1]))
try:
    serializers.avro({"type": "string"})
except errors.MisusedClient as error:
    print(error)
try:
    import penstock.broker
except ModuleNotFoundError as error:
    print(error)
try:
    from penstock import read
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clients")
    write(folder)
    return folder


def packages_of(name: str) -> Iterator[Path]:
    """The folders and modules that a distribution has beside its metadata."""
    files = metadata.distribution(name).files
    assert files is not None
    for first in sorted({file.parts[0] for file in files} - {".."}):
        path = Path(str(metadata.distribution(name).locate_file(first)))
        if path.exists() and not first.endswith(".dist-info"):
            yield path


def test_the_distribution_has_the_files_of_the_clients_byte_for_byte(sources: Path) -> None:
    files = [path for path in (sources / "src").rglob("*") if path.is_file()]
    for path in files:
        assert path.read_bytes() == (ROOT / path.relative_to(sources)).read_bytes()
    packages = {path.relative_to(sources).parts[2] for path in files}
    assert {"__init__.py", "py.typed", "version.py", "client", "net", "wire"} <= packages
    assert not packages & {"__main__.py", "broker", "cli", "groups", "metadata", "spark", "storage"}


def test_the_distribution_has_every_module_of_the_clients() -> None:
    paths = (ROOT / "src" / "penstock" / "client").rglob("*.py")
    names = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths}
    assert {name.removesuffix(".__init__") for name in names} <= set(modules())


@pytest.mark.process
def test_the_distribution_works_with_its_dependencies_alone(sources: Path, tmp_path: Path) -> None:
    for name in DEPENDENCIES:
        for path in packages_of(name):
            (tmp_path / path.name).symlink_to(path)
    with broker() as running:
        isolated = [sys.executable, "-I", "-S", "-c", _PROGRAM, running.bootstrap]
        done = subprocess.run(
            [*isolated, str(sources / "src"), str(tmp_path)], capture_output=True, text=True, timeout=120
        )
    assert done.stdout.splitlines() == [
        "[]",
        "b'1'",
        "b'1'",
        "Avro needs fastavro: pip install 'penstock-mq-client[avro]'",
        "No module named 'penstock.broker'",
        "penstock.frames is missing: pip install 'penstock-mq[frames]'",
    ], done.stderr


def test_the_metadata_has_the_versions_of_the_whole_distribution(sources: Path) -> None:
    found = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (found["name"], found["version"]) == (NAME, VERSION)
    assert set(found["dependencies"]) < set(WHOLE["project"]["dependencies"])
    assert {re.split(r"[<>=]", text)[0] for text in found["dependencies"]} == set(DEPENDENCIES)
    assert found["optional-dependencies"]["broker"] == [f"penstock-mq=={VERSION}"]
    for extra, needed in found["optional-dependencies"].items():
        assert extra == "broker" or needed == WHOLE["project"]["optional-dependencies"][extra]


def test_the_toml_is_read_as_it_was_written() -> None:
    content = project(WHOLE, "1.2.3")
    assert tomllib.loads(as_toml(content)) == content
