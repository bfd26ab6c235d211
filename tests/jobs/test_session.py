"""The settings of a session of Spark, the start and the end of its JVM, and what it prints when that ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import py4j
import pytest

from penstock.jobs import session

pytestmark = pytest.mark.process


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
        assert session.session_settings(master)[session.DRIVER_OPTIONS] == "-XX:TieredStopAtLevel=1"
    for master in ("local", "local[2]", ""):
        assert session.DRIVER_OPTIONS not in session.session_settings(master)


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like Spark, with a `java` of its own."""
    home = tmp_path / "spark"
    for folder in ("bin", "jars"):
        (home / folder).mkdir(parents=True)
    for program in ("java", "spark-submit"):
        (home / "bin" / program).write_text("#!/bin/sh\n")
        (home / "bin" / program).chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The tests themselves have a session with forks.
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    return home


class FakeJvm:
    """Stands for the JVM that PySpark starts: a process that ends when its standard input does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, command: str = "cat > /dev/null") -> None:
        self.process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE)
        #: the settings and the environment that it was started with
        self.settings: Mapping[str, str] = {}
        self.environment: dict[str, str] = {}
        self._is_started = False
        monkeypatch.setattr(session, "_jvm", lambda: self.process if self._is_started else None)
        monkeypatch.setattr(session, "new_session", self._new_session)

    def _new_session(self, master: str, settings: Mapping[str, str]) -> None:
        self.settings, self.environment = settings, dict(os.environ)
        self._is_started = True


def started(*, writes_archive: bool = False) -> session.SessionStart:
    start = session.SessionStart("local[2]", writes_archive=writes_archive)
    start.session(lambda: None)
    return start


def test_the_environment_of_the_jvm_is_its_own(spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xmx1g")
    jvm = FakeJvm(monkeypatch)
    start = started()
    assert jvm.environment["PYSPARK_DRIVER_PYTHON"] == "no-lookup-of-data-sources"
    assert jvm.environment["SPARK_LAUNCHER_OPTS"] == os.environ["SPARK_LAUNCHER_OPTS"] == "-Xmx1g"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
    assert not start.end(in_order=True)


def test_a_jvm_writes_the_archive_that_later_ones_use(
    spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = FakeJvm(monkeypatch)
    start = started(writes_archive=True)
    option, written = jvm.settings[session.DRIVER_OPTIONS].split()[0].split("=", 1)
    assert option == "-XX:ArchiveClassesAtExit"
    Path(written).write_text("classes\n")
    assert start.end(in_order=True)
    (archive,) = (tmp_path / "cache" / "penstock").iterdir()
    assert archive.read_text() == "classes\n"
    later = FakeJvm(monkeypatch)
    assert not started().end(in_order=True)
    assert later.settings[session.DRIVER_OPTIONS].startswith(f"-XX:SharedArchiveFile={archive} ")


@pytest.mark.parametrize("variable", ["PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"])
def test_the_options_of_the_jvm_of_spark_submit_stay(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    jvm = FakeJvm(monkeypatch)
    start = started(writes_archive=True)
    assert session.DRIVER_OPTIONS not in jvm.settings
    assert "PYSPARK_DRIVER_PYTHON" not in jvm.environment
    assert not start.end(in_order=True)


def test_a_session_that_failed_kills_its_jvm(
    spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = FakeJvm(monkeypatch, "trap '' PIPE; exec sleep 600")
    start = started(writes_archive=True)
    written = jvm.settings[session.DRIVER_OPTIONS].split()[0].split("=", 1)[1]
    Path(written).write_text("half of the classes\n")
    assert not start.end(in_order=False)
    assert jvm.process.returncode == -signal.SIGKILL
    assert list((tmp_path / "cache" / "penstock").iterdir()) == []


def test_the_jvm_of_another_session_of_the_process_is_not_ended(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = FakeJvm(monkeypatch)
    first = started()
    for other in (session.SessionStart("local[2]"), started()):
        other.end(in_order=False)
        assert jvm.process.poll() is None
    first.end(in_order=True)
    assert jvm.process.returncode == 0


def test_the_end_of_a_jvm_in_words(spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = FakeJvm(monkeypatch)
    start = started()
    jvm.process.kill()
    assert start.jvm_ending() == "was killed with SIGKILL, by a user or by the kernel for lack of memory"
    start.end(in_order=False)
    assert session.describe_exit(-signal.SIGABRT) == "was killed with SIGABRT"
    assert session.describe_exit(52) == "has ended with exit code 52 (out of memory)"
    assert session.describe_exit(1) == "has ended with exit code 1"
