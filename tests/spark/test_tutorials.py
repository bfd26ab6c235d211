"""The tutorials that use Spark work as their readers follow them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.testing import broker
from tests.cli.running import run
from tests.docs.tutorials import check, follow, page, steps
from tests.docs.walkthrough import Shell
from tests.tables.in_session import run_in_session

pytestmark = pytest.mark.process


def test_spark_to_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_in_session(monkeypatch, spark)
    names: dict[str, Any] = {"__name__": "__main__"}  # a later block goes on with the names of the job
    with broker() as running:
        shell = Shell(monkeypatch, capfd, names=names)
        shell.use(running.bootstrap)
        try:
            assert follow(page("spark-to-delta"), shell) == 5
        finally:
            # A producer of the page would report the end of its broker in a later test.
            names.clear()


def test_gpu_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with _running_exporter() as port, broker() as running:
        shell = Shell(monkeypatch, capfd)
        shell.use(running.bootstrap)
        for block, expected in steps(page("gpu-fleet")):
            if block.code.startswith("# exporter.py"):
                continue
            if "backfill" in block.code:
                # A session of its own, which ends with the command.
                done = run(*block.code.split()[1:], bootstrap=running.bootstrap)
                assert done.returncode == 0, done.stderr
                continue
            code = block.code.replace("127.0.0.1:9400", f"127.0.0.1:{port}")
            check(block, shell.run(block._replace(code=code)), expected)
    assert list((tmp_path / "report").iterdir())


@contextmanager
def _running_exporter() -> Iterator[int]:
    """The exporter of the page, on the port that is returned."""
    with HTTPServer(("127.0.0.1", 0), _exporter()) as exporter:
        serving = threading.Thread(target=exporter.serve_forever)
        serving.start()
        try:
            yield exporter.server_port
        finally:
            # A server that is closed while it runs takes a core until the end of the process.
            exporter.shutdown()
            serving.join()


def _exporter() -> Any:
    """The class of the page, without its server."""
    (code,) = (block.code for block, _ in steps(page("gpu-fleet")) if block.code.startswith("# exporter.py"))
    definition, serving, _ = code.partition("HTTPServer((")
    assert serving
    names: dict[str, Any] = {}
    exec(definition, names)
    return names["Exporter"]
