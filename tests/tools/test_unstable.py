"""Tests that failed beside others are run again alone, unless they found a wrong number of records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tools.unstable import _COUNTING, _NOT_COUNTING, LIMIT, VARIABLE, is_timeout, planned, verdict

COUNTING, OTHER = "tests/chaos/test_chaos.py::test_a", "tests/console/pages/test_layout.py::test_a"


def test_a_failure_of_a_counting_test_is_final_and_others_are_run_again() -> None:
    """Also beside a final failure: what the second run says helps with the next one."""
    assert verdict({OTHER: False, COUNTING: False}) == ([COUNTING], {OTHER: 1})
    assert verdict({OTHER: True}) == ([], {OTHER: 1})


def test_a_timeout_of_a_counting_test_is_run_again_three_times() -> None:
    assert verdict({COUNTING: True, OTHER: False}) == ([], {COUNTING: 3, OTHER: 1})


def test_neighbours_that_count_nothing_are_run_again_once() -> None:
    assert verdict({"tests/broker/links/test_metrics.py::test_a": False}) == (
        [],
        {"tests/broker/links/test_metrics.py::test_a": 1},
    )


def test_many_failures_are_final() -> None:
    names = [f"tests/cli/test_{n}.py::test_a" for n in range(LIMIT + 1)]
    assert verdict(dict.fromkeys(names[:LIMIT], False)) == ([], dict.fromkeys(names[:LIMIT], 1))
    assert verdict(dict.fromkeys(names, True)) == (names, {})
    assert verdict({}) == ([], {})


def test_timeouts_are_told_from_wrong_numbers() -> None:
    assert is_timeout(TimeoutError("not within 60 s"))
    assert is_timeout(subprocess.TimeoutExpired("penstock", 60))
    assert is_timeout(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert not is_timeout(KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    assert not is_timeout(AssertionError("Timeout (>60s)"))
    assert not is_timeout(ConnectionError())
    with pytest.raises(pytest.fail.Exception) as limit:
        pytest.fail("Timeout (>600.0s) from pytest-timeout.")
    assert is_timeout(limit.value)
    with pytest.raises(pytest.fail.Exception) as other:
        pytest.fail("two records are missing")
    assert not is_timeout(other.value)


def test_tests_are_grouped_by_interpreter_and_runs() -> None:
    assert planned(["p1\t1\ta::b\n", "p2\t1\tc::d\n", "p1\t1\te::f\n", "p1\t1\ta::b\n", "p1\t3\tg::h"]) == {
        ("p1", 1): ["a::b", "e::f"],
        ("p2", 1): ["c::d"],
        ("p1", 3): ["g::h"],
    }


def test_paths_exist() -> None:
    assert [path for path in (*_COUNTING, *_NOT_COUNTING) if not Path(path).exists()] == []
    assert all(path.startswith(_COUNTING) for path in _NOT_COUNTING)


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
    assert kept.read_text() == f"{sys.executable}\t1\t{str(test).lstrip('/')}::test_it\n"
    again = [sys.executable, "-m", "tools.unstable", str(kept)]
    kept.write_text(f"{sys.executable}\t1\t{test}::test_it\n")
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


@pytest.mark.process
def test_a_timeout_in_a_counting_directory_must_pass_three_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails again in the third run, so it is no accident of time."""
    kept, runs, folder = tmp_path / "failed", tmp_path / "runs", tmp_path / "tests" / "chaos"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text(
        "from pathlib import Path\n\n"
        f"runs = Path({str(runs)!r})\n\n"
        "def test_it():\n"
        "    past = runs.read_text() if runs.exists() else ''\n"
        "    runs.write_text(past + '.')\n"
        "    if len(past) in (0, 3):\n"
        "        raise TimeoutError\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path), "-c", "/dev/null", str(folder / "test_it.py")]
    monkeypatch.setenv(VARIABLE, str(kept))
    assert subprocess.run(command, check=False).returncode == 0
    assert kept.read_text() == f"{sys.executable}\t3\ttests/chaos/test_it.py::test_it\n"
    monkeypatch.delenv(VARIABLE)
    kept.write_text(f"{sys.executable}\t3\t{folder / 'test_it.py'}::test_it\n")
    again = [sys.executable, "-m", "tools.unstable", str(kept)]
    assert subprocess.run(again, check=False).returncode == 1
    assert runs.read_text() == "...."
