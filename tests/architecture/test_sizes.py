"""Modules, functions and classes stay small, or state why they are not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES_OF_A_MODULE = 400
LINES_OF_A_FUNCTION = 50
METHODS_OF_A_CLASS = 25


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


@cache
def definitions() -> list[tuple[str, ast.stmt, str]]:
    """Each function and class with the name of its module and its text."""
    found: list[tuple[str, ast.stmt, str]] = []
    for name, text in modules():
        lines = text.split("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.append((name, node, "\n".join(lines[node.lineno - 1 : node.end_lineno])))
    return found


def test_modules_are_short() -> None:
    assert [name for name, text in modules() if text.count("\n") > LINES_OF_A_MODULE] == []


def test_long_functions_state_their_reason() -> None:
    found = [
        f"{name}: line {node.lineno}"
        for name, node, text in definitions()
        if not isinstance(node, ast.ClassDef)
        and text.count("\n") >= LINES_OF_A_FUNCTION
        and "Longer than" not in text
    ]
    assert found == []


def test_large_classes_state_their_reason() -> None:
    found = [
        f"{name}: {node.name}"
        for name, node, _ in definitions()
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        > METHODS_OF_A_CLASS
        and f"more than {METHODS_OF_A_CLASS}" not in (ast.get_docstring(node) or "")
    ]
    assert found == []
