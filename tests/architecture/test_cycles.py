"""No module imports itself through others, type-only imports included."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.sources import sources, statements


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of `known` that a module imports anywhere in its text."""
    names = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inside & known or {node.module}
    return names & known


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
    assert imports(ast.parse(source), {"penstock.net.server", "penstock.net"}) == {"penstock.net.server"}


def test_an_import_inside_a_function_counts() -> None:
    source = "def f():\n    try:\n        pass\n    finally:\n        import penstock.net\n"
    assert imports(ast.parse(source), {"penstock.net"}) == {"penstock.net"}


def test_no_module_imports_itself_through_others() -> None:
    known = {source.module for source in sources()}
    graph = {source.module: imports(source.tree, known) - {source.module} for source in sources()}
    assert first_cycle(graph) is None
