"""Processes that are forked for Spark: they must not differ from those that an interpreter would start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.telemetry.pipeline.fork_server import WorkerForks

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not WorkerForks.are_possible(), reason="needs pidfds"),
]

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
    """A stand-in whose server belongs to a driver of its own: the process of the tests has threads."""
    driver = f"""
import os, sys
sys.path.insert(0, {str(modules)!r})
from penstock.telemetry.pipeline.fork_server import WorkerForks
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


def test_a_fork_has_the_arguments_environment_files_and_exit_code(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "3", "more", cwd=modules)
    output, error = process.communicate("line\n", timeout=60)
    first, second = output.splitlines()
    parent = first.split()[-2]
    assert first == f"['3', 'more'] environment {modules} {parent} True"
    assert int(parent) != process.pid, "the server has forked it"
    assert (second, error, process.returncode) == ("read line", "error\n", 3)


def test_an_error_is_printed_as_an_interpreter_does(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "fail", cwd=modules)
    _, error = process.communicate("", timeout=60)
    assert error.splitlines()[-1] == "RuntimeError: failed"
    assert process.returncode == 1


def test_a_fork_ends_with_its_stand_in(python: str, modules: Path) -> None:
    process = started(python, "-m", "program", "0", cwd=modules)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    # The pipe is closed when both have ended, although its input is still open.
    assert process.stdout.read() == ""
    assert process.wait(60) == -signal.SIGTERM
    process.communicate()


def test_other_arguments_run_in_the_interpreter_itself(python: str, modules: Path) -> None:
    process = started(python, "-c", "import os; print(os.getpid())", cwd=modules)
    output, _ = process.communicate(timeout=60)
    assert int(output) == process.pid


def test_without_a_server_the_interpreter_runs(modules: Path) -> None:
    forks = WorkerForks()
    try:
        process = started(forks.python, "-m", "program", "0", cwd=modules)
        output, _ = process.communicate("", timeout=60)
        assert output.split()[-1] == "False"
        assert process.returncode == 0
    finally:
        forks.close()
