"""The code in docs/testing.md, run as its readers would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
#: the content of `conftest.py`
CONFTEST = SNIPPETS[0]
TESTS = [code for code in SNIPPETS if "def test_" in code]
SCRIPTS = [code for code in SNIPPETS[1:] if "def test_" not in code]


def test_the_page_has_both_kinds() -> None:
    assert "pytest_plugins" in CONFTEST
    assert TESTS
    assert SCRIPTS


@pytest.mark.parametrize("code", TESTS, ids=range(len(TESTS)))
def test_tests(pytester: pytest.Pytester, code: str) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(code)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.parametrize("code", SCRIPTS, ids=range(len(SCRIPTS)))
def test_scripts(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
