"""`tests/` mirrors `src/penstock/`.

Each module has a test of its name in the same folder, or a row in `elsewhere.toml`. Helpers are in modules
without tests.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src/penstock"
TESTS: Final = ROOT / "tests"

#: the row of modules that are in no package
_TOP: Final = "penstock"


def rows() -> dict[str, str]:
    """The test of each module without one of its name. Keys are paths, and may be patterns."""
    tables = tomllib.loads((Path(__file__).with_name("elsewhere.toml")).read_text(encoding="utf-8"))
    return {
        module if package == _TOP else f"{package}/{module}": test
        for package, table in tables.items()
        for module, test in table.items()
    }


ELSEWHERE: Final = rows()


def modules() -> list[str]:
    paths = [path.relative_to(SOURCES).with_suffix("") for path in SOURCES.rglob("*.py")]
    return sorted(str(path) for path in paths if path.name not in ("__init__", "__main__"))


def has_own_test(module: str) -> bool:
    folder, _, name = module.rpartition("/")
    return (TESTS / folder / f"test_{name}.py").exists()


def missing() -> Iterator[str]:
    """Modules without a test of their name and without a row."""
    patterns = [row for row in ELSEWHERE if row.endswith("/*")]
    for module in modules():
        has_row = module in ELSEWHERE or any(fnmatchcase(module, pattern) for pattern in patterns)
        if not has_row and not has_own_test(module):
            yield module


def test_each_module_has_a_test_or_a_row() -> None:
    assert list(missing()) == [], "write a test of that name, or add a row to elsewhere.toml"


def test_a_module_with_a_test_of_its_name_has_no_row() -> None:
    assert [module for module in ELSEWHERE if has_own_test(module)] == [], "remove these rows"


def test_each_row_is_about_modules() -> None:
    there = modules()
    assert [row for row in ELSEWHERE if not any(fnmatchcase(module, row) for module in there)] == []


def test_each_row_names_a_test() -> None:
    assert {test for test in ELSEWHERE.values() if not (TESTS / f"{test}.py").exists()} == set()


@pytest.mark.parametrize("package", ["broker", "cli"])
def test_packages_of_tests_have_the_names_of_packages(package: str) -> None:
    packages = {path.parent.name for path in (ROOT / "src/penstock" / package).glob("*/__init__.py")}
    assert {path.parent.name for path in (ROOT / "tests" / package).glob("*/test_*.py")} <= packages


def test_tests_of_the_command_line_lie_beside_the_tested_module() -> None:
    """A test that has the name of a module of `cli` is in the package of that module."""
    sources, tests = ROOT / "src/penstock/cli", ROOT / "tests/cli"
    modules = {path.relative_to(sources).with_suffix("") for path in sources.rglob("*.py")}
    names = {module.name for module in modules}
    found = {path.relative_to(tests).with_suffix("") for path in tests.rglob("test_*.py")}
    meant = {test.with_name(test.name.removeprefix("test_")) for test in found}
    assert {module for module in meant if module.name in names} <= modules


def test_no_test_imports_another_test() -> None:
    wrong = re.compile(r"^\s*from tests\.[\w.]*\btest_\w+ import", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py") if wrong.search(path.read_text())
    ]
    assert found == [], "move what is shared into a module without tests"
