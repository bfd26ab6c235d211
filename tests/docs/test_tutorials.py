"""The tutorials work as their readers follow them, and again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from penstock.cli import client_config
from penstock.cli.cluster.broker_home import homes_in
from penstock.cli.cluster.starting import stop_again
from penstock.testing import broker
from tests.cli.running import consecutive_free_ports
from tests.console.serving import serving
from tests.docs.tutorials import check, follow, matches, page, steps
from tests.docs.walkthrough import ROOT, Shell, blocks
from tests.waiting import eventually

pytestmark = pytest.mark.process

_LIMIT_S: Final = 120
_CONSOLE_S: Final = 60

#: no group of a test waits for members that are never started
_QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
}
ON_A_BROKER: Final = ("first-topic", "work-queue", "exactly-once-billing")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the reader is in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    return tmp_path


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(config=_QUICK) as running:
        yield running.bootstrap


@pytest.mark.parametrize("round", ["first", "again"])
@pytest.mark.parametrize("name", ON_A_BROKER)
def test_tutorials_on_one_broker(
    folder: Path,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    round: str,
) -> None:
    shell = Shell(monkeypatch, capfd, skipped=lambda line: line == "penstock up")
    shell.use(bootstrap)
    assert follow(page(name), shell)


def test_every_tutorial_is_listed_and_compares_an_output() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md")} - {"README"}
    index = (ROOT / "docs" / "tutorials" / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in index for name in pages)
    elsewhere = {"testing", "from-kafka", "secured-cluster", "incident", "spark-to-delta", "gpu-fleet"}
    # The last two are in tests/spark/test_tutorials.py, from-kafka in tests/docs/test_migration.py.
    assert pages == {*ON_A_BROKER, *elsewhere}
    for name in pages:
        assert any(expected for _, expected in steps(page(name))), name
        assert blocks(page(name), "sh", "python"), name


def test_a_suite_with_a_cluster(folder: Path) -> None:
    for block in blocks(page("testing"), "python"):
        name = block.code.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(block.code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=_LIMIT_S)
    (shown,) = blocks(page("testing"), "text")
    assert matches(shown.code, done.stdout), done.stdout + done.stderr


@pytest.fixture
def first_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of the first broker of a cluster of processes, which ends with the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    try:
        yield consecutive_free_ports(4)
    finally:
        for data in ("secured", "incident"):
            if (folder / data).exists():
                stop_again(homes_in(folder / data))
        client_config.use(None)


def shell_of(first_port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    shell = Shell(
        monkeypatch, capfd, rewritten=lambda line: line.replace("--port 9092", f"--port {first_port}")
    )
    shell.use(f"127.0.0.1:{first_port}")
    return shell


def test_a_secured_cluster(
    first_port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="no cryptography: pip install 'penstock-mq[security]'")
    assert follow(page("secured-cluster"), shell_of(first_port, monkeypatch, capfd))


def test_an_incident(
    first_port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = shell_of(first_port, monkeypatch, capfd)
    with ExitStack() as running:
        console = ""
        for block, expected in steps(page("incident")):
            if block.code == "penstock console\n":
                console = running.enter_context(serving(f"127.0.0.1:{first_port}"))
                wait_for_level(console, "Healthy")
                continue
            shown = expected and expected.replace(":9093", f":{first_port + 1}")
            check(block, shell.run(block), shown)
            if "Degraded" in block.code:
                wait_for_level(console, "Degraded")
            elif expected == "all replicas are in sync\n":
                wait_for_level(console, "Healthy")
    assert console


def wait_for_level(console: str, level: str) -> None:
    """Wait until the console says that the cluster is in this state."""
    eventually(lambda: overview(console)["health"]["level"] == level, _CONSOLE_S)


def overview(console: str) -> dict[str, Any]:
    with urlopen(f"{console}/api/overview", timeout=_CONSOLE_S) as response:
        found: dict[str, Any] = json.load(response)
        return found
