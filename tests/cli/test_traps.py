"""Every process starts in a directory full of traps, and imports none of them.

A directory for data or downloads that others can write to must not decide what runs as the broker: files such
as `typer.py` and `pickle.py` did.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from penstock.broker.base.workers import SystemWorkers
from tests.cli.running import WAIT_S, consecutive_free_ports

pytestmark = pytest.mark.process

MODULE = [sys.executable, "-m", "penstock"]
SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "penstock")]


class Traps:
    """A directory with a file for each module of the library and of all packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "traps"
        self.folder.mkdir()
        self._caught = folder / "caught"
        trap = f"open({str(self._caught)!r}, 'a').write(__name__ + '\\n')\nraise ImportError('a trap')\n"
        names = {*sys.stdlib_module_names, *packages_distributions(), "penstock", "sitecustomize"}
        for name in names:
            if name.isidentifier():
                (self.folder / f"{name}.py").write_text(trap)

    def without_those_of_python(self) -> Traps:
        """Without the modules that `python -m penstock` itself imports before any code of ours runs.

        Only the script and `python -P` are safe from these.
        """
        empty = self.folder.parent / "empty"
        empty.mkdir()
        (empty / "started.py").write_text(
            "import sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
        )
        command = [sys.executable, "-m", "started"]
        loaded = subprocess.run(command, cwd=empty, env=environment(), capture_output=True, check=True)
        for name in (*loaded.stdout.decode().split(), "penstock"):
            (self.folder / f"{name}.py").unlink(missing_ok=True)
        return self

    @property
    def caught(self) -> list[str]:
        return self._caught.read_text().split() if self._caught.exists() else []


@pytest.fixture
def traps(tmp_path: Path) -> Iterator[Traps]:
    made = Traps(tmp_path)
    yield made
    assert made.caught == []


def environment() -> dict[str, str]:
    """As a user has it: without a setting that would hide the traps."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}


def started(traps: Traps, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=traps.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(traps: Traps, *command: str) -> str:
    done = subprocess.run(
        command, cwd=traps.folder, env=environment(), capture_output=True, text=True, timeout=2 * WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_traps_work(tmp_path: Path) -> None:
    traps = Traps(tmp_path)
    subprocess.run([sys.executable, "-c", "import typer"], cwd=traps.folder, env=environment(), stderr=-3)
    assert traps.caught == ["typer"]


def test_the_command(traps: Traps) -> None:
    assert "penstock" in run(traps, *SCRIPT, "version")
    assert "penstock" in run(traps.without_those_of_python(), *MODULE, "version")


@pytest.mark.parametrize("command", ["script", "module"])
def test_a_broker(traps: Traps, tmp_path: Path, command: str) -> None:
    if command == "module":
        traps.without_those_of_python()
    arguments = ["up", "--port", "0", "--data", str(tmp_path / "data")]
    process = started(traps, [*(SCRIPT if command == "script" else MODULE), *arguments])
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready "), traps.caught
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_worker_processes(traps: Traps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction, scrubbing and regular expressions run in them."""
    monkeypatch.chdir(traps.folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    workers = SystemWorkers(lambda: 1)

    async def main() -> int:
        try:
            return await workers.in_process(max, 1, 2)
        finally:
            workers.close()

    assert asyncio.run(main()) == 2


@pytest.mark.slow
def test_brokers_of_several_cores_and_the_console(traps: Traps, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    port = consecutive_free_ports(8)
    data = ["--data", str(tmp_path / "data"), "--port", str(port)]
    process = started(
        traps, [*SCRIPT, "up", "--cores", "2", "--console", "--console-port", str(port + 7), *data]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready "), traps.caught
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_cluster(traps: Traps, tmp_path: Path) -> None:
    where = ("--data", str(tmp_path / "cluster"))
    port = consecutive_free_ports(10)
    run(traps, *SCRIPT, "cluster", "start", "--brokers", "1", "--port", str(port), *where)
    try:
        run(traps, *SCRIPT, "broker", "kill", "1", *where)
        run(traps, *SCRIPT, "broker", "start", "1", *where)
    finally:
        run(traps, *SCRIPT, "cluster", "stop", *where)


@pytest.mark.slow
def test_workers_of_spark(traps: Traps) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")
    program = (
        "from penstock.jobs.session import new_session\n"
        "session = new_session('local[1]')\n"
        "print(session.range(3).mapInArrow(lambda batches: batches, 'id BIGINT').count())\n"
        "session.stop()\n"
    )
    assert run(traps, sys.executable, "-P", "-c", program).strip().endswith("3")
