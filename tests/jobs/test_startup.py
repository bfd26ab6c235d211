"""Forks for Spark, which must not differ from processes that an interpreter starts, and archives of classes.

An archive: which one is used, and which one is written.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.jobs.startup import ClassArchive, WorkerForks, find_archive

pytestmark = pytest.mark.process
forks_only = pytest.mark.skipif(not WorkerForks.are_possible(), reason="needs pidfds")

PROGRAM = """
import os, sys
print(sys.argv[1:], os.environ["GIVEN"], os.getcwd(), os.getppid(), "preloaded" in sys.modules, flush=True)
print("error", file=sys.stderr)
for line in sys.stdin:
    print("read", line.strip(), flush=True)
if sys.argv[1] == "fail":
    raise RuntimeError("failed")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "preloaded.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def python(modules: Path) -> Iterator[str]:
    """An interpreter whose server belongs to a driver of its own: the process of the tests has threads."""
    driver = f"""
import os, sys
sys.path.insert(0, {str(modules)!r})
from penstock.jobs.startup import WorkerForks
forks = WorkerForks()
def preload():
    import preloaded
forks.serve(preload)
print(forks.python, flush=True)
sys.stdin.read()
forks.close()
"""
    with subprocess.Popen(
        [sys.executable, "-c", driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        yield path
        process.communicate("")
    assert not Path(path).exists()


def started(python: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "GIVEN": "environment", "PYTHONPATH": str(cwd)},
    )


@forks_only
def test_a_fork_has_the_arguments_environment_files_and_exit_code(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "3", "more", cwd=modules)
    output, error = process.communicate("line\n", timeout=60)
    first, second = output.splitlines()
    parent = first.split()[-2]
    assert first == f"['3', 'more'] environment {modules} {parent} True"
    assert int(parent) != process.pid, "the server has forked it"
    assert (second, error, process.returncode) == ("read line", "error\n", 3)


@forks_only
def test_an_error_is_printed_as_an_interpreter_does(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "fail", cwd=modules)
    _, error = process.communicate("", timeout=60)
    assert error.splitlines()[-1] == "RuntimeError: failed"
    assert process.returncode == 1


@forks_only
def test_a_fork_ends_with_its_program(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "0", cwd=modules)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    # The pipe is closed when both have ended, although its input is still open.
    assert process.stdout.read() == ""
    assert process.wait(60) == -signal.SIGTERM
    process.communicate()


@forks_only
def test_other_arguments_run_in_the_interpreter_itself(python: str, modules: Path) -> None:
    process = started(python, "-c", "import os; print(os.getpid())", cwd=modules)
    output, _ = process.communicate(timeout=60)
    assert int(output) == process.pid


@forks_only
def test_without_a_server_the_interpreter_runs(modules: Path) -> None:
    forks = WorkerForks()
    try:
        process = started(forks.python, "-m", "program", "0", cwd=modules)
        output, _ = process.communicate("", timeout=60)
        assert output.split()[-1] == "False"
        assert process.returncode == 0
    finally:
        forks.close()


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    return home


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a `java` of its own."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return {"PATH": str(java.parent), "HOME": str(tmp_path / "home")}


def found(spark_home: Path, environment: dict[str, str]) -> ClassArchive:
    archive = find_archive(spark_home, environment)
    assert archive is not None
    return archive


def test_an_archive_is_there_when_its_jvm_has_ended(spark_home: Path, environment: dict[str, str]) -> None:
    archive = found(spark_home, environment)
    assert not archive.exists
    assert not archive.keep(), "the JVM has written nothing"
    written = Path(archive.writing.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    written.parent.mkdir(parents=True)
    written.write_bytes(b"half")
    assert not archive.exists
    archive.discard()
    assert list(archive.path.parent.iterdir()) == []
    written.write_bytes(b"classes")
    assert archive.keep()
    assert found(spark_home, environment).exists
    assert archive.reading.split()[0] == f"-XX:SharedArchiveFile={archive.path}"
    assert [each.read_bytes() for each in archive.path.parent.iterdir()] == [b"classes"]


def test_another_jvm_spark_or_option_has_another_archive(
    spark_home: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    paths = {found(spark_home, environment).path}
    paths.add(found(spark_home, {**environment, "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC"}).path)
    other = tmp_path / "other"
    (other / "jars").mkdir(parents=True)
    paths.add(found(other, environment).path)
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    java = tmp_path / "jdk" / "bin" / "java"
    java.write_text("")
    java.chmod(0o755)
    paths.add(found(spark_home, {**environment, "JAVA_HOME": str(tmp_path / "jdk")}).path)
    assert len(paths) == 4


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_folders_in_the_class_path_allow_no_archive(
    spark_home: Path, environment: dict[str, str], variable: str
) -> None:
    assert find_archive(spark_home, {**environment, variable: "/etc/spark"}) is None
    (spark_home / "conf").mkdir()
    assert find_archive(spark_home, environment) is None


def test_without_java_there_is_no_archive(
    spark_home: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    assert find_archive(spark_home, {**environment, "PATH": str(tmp_path)}) is None
