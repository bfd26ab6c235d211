"""Tests that failed beside others are run again alone, unless they count records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.unstable import LIMIT, VARIABLE, by_interpreter, may_run_again


def test_failures_of_counting_tests_are_final() -> None:
    assert may_run_again(["tests/console/pages/test_layout.py::test_a"])
    assert not may_run_again(["tests/chaos/test_kills.py::test_a"])
    assert not may_run_again(["tests/console/test_a.py::test_a", "tests/storage/test_log.py::test_b"])


def test_many_failures_are_final() -> None:
    assert may_run_again([f"tests/cli/test_{n}.py::test_a" for n in range(LIMIT)])
    assert not may_run_again([f"tests/cli/test_{n}.py::test_a" for n in range(LIMIT + 1)])
    assert not may_run_again([])


def test_tests_are_grouped_by_interpreter() -> None:
    assert by_interpreter(["p1\ta::b\n", "p2\tc::d\n", "p1\te::f\n", "p1\ta::b\n"]) == {
        "p1": ["a::b", "e::f"],
        "p2": ["c::d"],
    }


def test_paths_of_counting_tests_exist() -> None:
    from tools.unstable import _COUNTING

    assert [path for path in _COUNTING if not Path(path).exists()] == []


@pytest.mark.process
@pytest.mark.parametrize(("passes", "status"), [("beside.exists()", 0), ("False", 1)])
def test_a_failed_test_is_judged_by_its_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: str, status: int
) -> None:
    """The first run fails and leaves its verdict to the second run, which passes in one case."""
    kept, test, beside = tmp_path / "failed", tmp_path / "test_it.py", tmp_path / "beside"
    test.write_text(
        "from pathlib import Path\n\n"
        f"beside = Path({str(beside)!r})\n\n"
        "def test_it():\n"
        f"    passes = {passes}\n"
        "    beside.touch()\n"
        "    assert passes\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["--rootdir", "/", "-c", "/dev/null", str(test)]
    monkeypatch.setenv(VARIABLE, str(kept))
    assert subprocess.run(command, check=False).returncode == 0
    assert kept.read_text() == f"{sys.executable}\t{str(test).lstrip('/')}::test_it\n"
    again = [sys.executable, "-m", "tools.unstable", str(kept)]
    kept.write_text(f"{sys.executable}\t{test}::test_it\n")
    monkeypatch.delenv(VARIABLE)
    done = subprocess.run(again, check=False, capture_output=True, text=True)
    assert done.returncode == status, done.stdout
    assert ("1 unstable tests" in done.stdout) is (status == 0)


@pytest.mark.process
def test_without_the_variable_a_failure_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it():\n    raise AssertionError\n")
    monkeypatch.delenv(VARIABLE, raising=False)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "--rootdir", str(tmp_path), "-c", "/dev/null", str(test)], check=False)
    assert done.returncode == 1
