"""No module imports itself through others, type-only imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: str, known: set[str]) -> set[str]:
    """The modules of `known` that a module imports anywhere in its text."""
    names = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inside & known or {node.module}
    return names & known


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below `node`. Expressions are left out: they are most of a tree, and import nothing."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        for child in inner if isinstance(inner, list) else ():
            yield child
            yield from statements(child)


def first_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return list(e.args[1])
    return None


@pytest.mark.parametrize("broken", [False, True])
def test_a_cycle_is_found(broken: bool) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"} if broken else set()}
    assert (first_cycle(graph) is not None) == broken


def test_a_type_only_import_counts() -> None:
    source = "if TYPE_CHECKING:\n    from penstock.net.server import Server\n"
    assert imports(source, {"penstock.net.server", "penstock.net"}) == {"penstock.net.server"}


def test_an_import_inside_a_function_counts() -> None:
    source = "def f():\n    try:\n        pass\n    finally:\n        import penstock.net\n"
    assert imports(source, {"penstock.net"}) == {"penstock.net"}


def test_no_module_imports_itself_through_others() -> None:
    paths = modules()
    known = set(paths)
    graph = {name: imports(path.read_text(), known) - {name} for name, path in paths.items()}
    assert first_cycle(graph) is None
