"""The list of skipped tests at the end of `make test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.skipped import VARIABLE, summary


def test_each_reason_has_its_number_and_the_most_frequent_comes_first() -> None:
    lines = summary(["no Chromium: apt-get install chromium\n"] * 29 + ["java is not installed\n"])
    assert lines == [
        "30 tests were skipped (`make test-tools` installs what it can):",
        "    29 no Chromium: apt-get install chromium",
        "     1 java is not installed",
    ]
    assert summary([]) == []


@pytest.mark.process
def test_a_run_of_pytest_leaves_its_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, test = tmp_path / "skipped", tmp_path / "test_it.py"
    test.write_text("import pytest\n\ndef test_it():\n    pytest.skip('no lathe: buy one')\n")
    monkeypatch.setenv(VARIABLE, str(kept))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        str(test),
    ]
    subprocess.run([*command, "--rootdir", str(tmp_path), "-c", "/dev/null"], check=True, cwd=Path.cwd())
    assert kept.read_text() == "no lathe: buy one\n"
