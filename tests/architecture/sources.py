"""The source files of the package, each parsed once for all tests of the architecture."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["SOURCES", "Source", "sources", "statements"]

SOURCES = Path(__file__).parents[2] / "src"


class Source(NamedTuple):
    """A module of the package."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        parts = self.path.relative_to(SOURCES).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> list[Source]:
    found = []
    # Syntax trees are no garbage, and collections would walk all of them again and again.
    gc.disable()
    try:
        for path in sorted(SOURCES.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.append(Source(path, text, ast.parse(text)))
    finally:
        gc.enable()
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below `node`. Expressions are left out: they are most of a tree, and define nothing."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        for child in inner if isinstance(inner, list) else ():
            yield child
            yield from statements(child)
