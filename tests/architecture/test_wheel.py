"""The wheel has what users run, and nothing that only maintainers of Penstock run."""

from __future__ import annotations

import ast

from hatchling.builders.wheel import WheelBuilder

from tests.architecture.sources import SOURCES, Source, sources

#: loaded by name or by another program: commands, `python -m`, the plugin of pytest
ENTRIES = ("penstock.cli.commands.", "penstock.testing.plugin")
MAIN = ".__main__"


def imported_by(source: Source) -> set[str]:
    """The modules that a module imports anywhere, or names in a text, such as a table of lazy imports."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return found


def unused(modules: list[Source]) -> list[str]:
    """The modules that no other module uses, and no program loads."""
    used = {name for each in modules for name in imported_by(each) - {each.module}}
    return [
        each.module
        for each in modules
        if each.module not in used
        and each.path.name != "__init__.py"
        and not each.module.endswith(MAIN)
        and not each.module.startswith(ENTRIES)
    ]


def test_the_wheel_is_the_folder_of_sources() -> None:
    """Tests, rows of benchmarks, tools, faults and comparisons stay out."""
    root = SOURCES.parent
    packed = {each.distribution_path for each in WheelBuilder(str(root)).recurse_included_files()}
    written = {
        str(path.relative_to(SOURCES))
        for package in ("penstock", "pyspark_penstock")
        for path in (SOURCES / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.partition("/")[0] for path in packed} == {"penstock", "pyspark_penstock"}
    assert packed == written


def test_each_module_of_the_wheel_is_used_by_another() -> None:
    """A module that only tests import belongs to the tests."""
    assert unused(sources()) == []


def test_a_module_that_only_tests_import_is_found() -> None:
    text = '"""Names nothing."""\n'
    helper = Source(SOURCES / "penstock" / "testing" / "helper.py", text, ast.parse(text))
    assert unused([*sources(), helper]) == ["penstock.testing.helper"]
    user = ast.parse("from penstock.testing import helper")
    assert unused([helper, Source(SOURCES / "penstock" / "__main__.py", "", user)]) == []
