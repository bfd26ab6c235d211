from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock import client
from penstock.client import errors
from penstock.model.errors import PenstockError
from penstock.testing import broker
from tools.client_distribution import DEPENDENCIES


@pytest.mark.process
def test_a_broker_does_not_load_the_clients() -> None:
    code = "import sys, penstock.broker.app.server; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer", "Queue"])
def test_the_package_gives_out_the_clients(name: str) -> None:
    assert getattr(penstock, name) is getattr(client, name)


def test_the_package_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        penstock.Broker  # noqa: B018


def test_all_exported_names_exist() -> None:
    assert sorted(client.__all__) == sorted(set(client.__all__))
    assert all(hasattr(client, name) for name in client.__all__)


def test_every_error_is_in_the_one_tree() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "translated"]
    assert all(issubclass(kind, PenstockError) for kind in kinds)
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in kinds)


#: what a program that uses the clients alone does not need
_NOT_NEEDED = ("google-re2", "pyyaml", "rich", "structlog", "typer", "uvloop")
_CLIENTS_ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"re2", "yaml", "rich", "structlog", "typer", "uvloop"}:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Absent())
import asyncio
from penstock import Admin, Consumer, Producer, Queue

async def main(bootstrap):
    async with Admin(bootstrap) as admin:
        await admin.create_topic("slim")
    async with Producer(bootstrap) as producer:
        await producer.send("slim", "1")
    async with Consumer(bootstrap, "slim", group="consumers") as consumer:
        print((await anext(consumer)).value)
    async with Queue(bootstrap, "slim", group="queues") as queue:
        print((await anext(queue)).value)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.process
def test_the_clients_do_without_the_packages_of_the_broker() -> None:
    with broker() as running:
        command = [sys.executable, "-c", _CLIENTS_ALONE, running.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'1'\nb'1'\n", done.stderr


def test_the_page_names_the_packages_of_the_clients() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "clients.md").read_text(encoding="utf-8")
    named = re.findall(r"with four dependencies: (.+)\. The imports", page)
    dependencies = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[<>=]", dependency)[0] for dependency in dependencies}
    assert set(re.split(r", | and ", *named)) == names - set(_NOT_NEEDED) == set(DEPENDENCIES)
