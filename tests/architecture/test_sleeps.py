"""Tests wait for conditions, or move virtual time. A sleep of real time states its reason beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
_SLEEPS = {"sleep", "time.sleep", "asyncio.sleep"}
#: as long as this is a handler or a process that hangs: the test ends it
_HANGS_S = 60
#: modules with loops whose time is virtual
_VIRTUAL = ("penstock.testing.simulation", "tests.broker.machines")


def sleeps(tree: ast.AST, *, in_loop: bool = False) -> Iterator[ast.Call]:
    """Sleeps outside of loops that poll a condition."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Call) and ast.unparse(child.func) in _SLEEPS and not in_loop:
            yield child
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from sleeps(child, in_loop=isinstance(child, ast.While) or (in_loop and not is_function))


def is_short(call: ast.Call) -> bool:
    """A turn of the event loop, or a sleep that never ends by itself."""
    if not call.args or not isinstance(call.args[0], ast.Constant):
        return False
    seconds = call.args[0].value
    return isinstance(seconds, int | float) and (seconds == 0 or seconds >= _HANGS_S)


def found(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "sleep(" not in text or any(f"from {module}" in text for module in _VIRTUAL):
        return
    lines = text.split("\n")
    for call in sleeps(ast.parse(text)):
        if not is_short(call) and "#" not in lines[call.lineno - 1]:
            yield f"{path.relative_to(TESTS)}:{call.lineno}: {ast.unparse(call)}"


def test_a_sleep_of_real_time_states_its_reason() -> None:
    assert [each for path in sorted(TESTS.rglob("*.py")) for each in found(path)] == []
