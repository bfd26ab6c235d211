"""The settings of a session of Spark, and what it prints when its JVM ends."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import py4j
import pytest

from penstock.telemetry.pipeline import jvm, session


def test_py4j_prints_no_tracebacks_of_a_lost_jvm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    server = SimpleNamespace()
    context = SimpleNamespace(_accumulatorServer=server)
    session._keep_quiet_about_lost_jvm(cast(Any, SimpleNamespace(sparkContext=context)))
    path = str(Path(py4j.__file__).parent / "java_gateway.py")
    logging.root.handle(logging.LogRecord("root", logging.ERROR, path, 1, "lost", (), None))
    logging.getLogger("penstock.telemetry").warning("maintenance failed: %s", "x")
    server.handle_error(None, None)
    assert capsys.readouterr().err == "maintenance failed: x\n"


def test_settings_of_spark_submit_stay() -> None:
    own = session.session_settings("spark://host:7077")
    assert own.keys() - session.session_settings("").keys() == {
        "spark.driver.defaultJavaOptions",
        "spark.master",
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
    }


def test_only_a_driver_without_tasks_is_spared_the_optimising_compiler() -> None:
    for master in ("spark://host:7077", "yarn", "local-cluster[2,1,1024]"):
        assert session.session_settings(master)[jvm.DRIVER_OPTIONS] == "-XX:TieredStopAtLevel=1"
    for master in ("local", "local[2]", ""):
        assert jvm.DRIVER_OPTIONS not in session.session_settings(master)
