"""Modules, functions and classes stay small, or state why they are not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import Source, sources, statements

LINES_OF_A_MODULE = 400
LINES_OF_A_FUNCTION = 50
METHODS_OF_A_CLASS = 25


def definitions() -> Iterator[tuple[Source, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Each function and class with its module."""
    for source in sources():
        for node in statements(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield source, node


def states_its_reason(source: Source, node: ast.stmt) -> bool:
    lines = source.text.split("\n")[node.lineno - 1 : node.end_lineno]
    return any("Longer than" in line for line in lines)


def test_modules_are_short() -> None:
    assert [each.module for each in sources() if each.text.count("\n") > LINES_OF_A_MODULE] == []


def test_long_functions_state_their_reason() -> None:
    found = [
        f"{source.module}: line {node.lineno}"
        for source, node in definitions()
        if not isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno >= LINES_OF_A_FUNCTION
        and not states_its_reason(source, node)
    ]
    assert found == []


def test_large_classes_state_their_reason() -> None:
    found = [
        f"{source.module}: {node.name}"
        for source, node in definitions()
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        > METHODS_OF_A_CLASS
        and f"more than {METHODS_OF_A_CLASS}" not in (ast.get_docstring(node) or "")
    ]
    assert found == []
