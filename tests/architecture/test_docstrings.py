"""A package whose docstring lists its imports lists all of them."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import Source, sources

#: They import nearly every package, and say so in words.
_IN_WORDS = {"broker", "cli", "testing"}
#: modules that are below all packages
_BELOW = {"version"}


def packages() -> dict[str, str]:
    """The sentence about imports of each package that has one."""
    found = {}
    for source in sources():
        parts = source.module.split(".")
        if parts[0] == "penstock" and len(parts) == 2 and source.path.name == "__init__.py":
            sentence = re.search(
                r"^Imports: (.*?)\.(?:\s|$)", ast.get_docstring(source.tree) or "", re.M | re.S
            )
            if sentence and parts[1] not in _IN_WORDS:
                found[parts[1]] = sentence[1]
    return found


def imported(source: Source) -> set[str]:
    modules = (node.module for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom))
    return {name.split(".")[1] for name in modules if name and name.startswith("penstock.")}


def test_each_package_lists_its_imports() -> None:
    actual: dict[str, set[str]] = {}
    for source in sources():
        parts = source.module.split(".")
        if parts[0] == "penstock" and len(parts) > 1:
            actual.setdefault(parts[1], set()).update(imported(source) - {parts[1], *_BELOW})
    listed = {
        package: {name for name in re.findall(r"`(\w+)[`.]", sentence) if name in actual}
        for package, sentence in packages().items()
    }
    assert len(listed) > 15
    assert listed == {package: actual[package] for package in listed}
