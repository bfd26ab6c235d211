"""Parts get what they use when they are constructed: nothing is connected afterwards (ADR 16)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, sources

#: the modules that compose a broker
STAGES = frozenset(
    f"penstock.broker.app.{name}"
    for name in (
        "broker",
        "cluster",
        "coordinators",
        "dispatchers",
        "healing",
        "health",
        "internal_routes",
        "listening",
        "monitoring",
        "replication",
        "routes",
        "serving",
        "share_parts",
        "share_routes",
        "stages",
        "storage",
    )
)
#: state of a broker that changes with its life, and is no connection
STATE = frozenset({"self.serving.health.phase.serving", "self.serving.health.phase.stopping"})
#: a response's, which its handler has just made
RESPONSES = frozenset({"on_cancel"})


def assigned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The attributes of other objects that a module assigns, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Attribute) and not _is_own(each):
                    yield node.lineno, ast.unparse(each)


def _is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def of_the_broker() -> list[Source]:
    return [each for each in sources() if each.module.startswith("penstock.broker.")]


@pytest.mark.parametrize("line", ["part.other = 1", "a, part.other = 1, 2", "self.part.other = 1"])
def test_an_assignment_to_another_object_is_found(line: str) -> None:
    assert len(list(assigned(ast.parse(line)))) == 1
    assert not list(assigned(ast.parse("self.other = 1")))


def test_each_stage_exists() -> None:
    assert {source.module for source in sources()} >= STAGES


def test_the_composition_assigns_no_attribute_of_a_part() -> None:
    found = [
        f"{source.module}:{line} {target}"
        for source in of_the_broker()
        if source.module in STAGES
        for line, target in assigned(source.tree)
        if target not in STATE
    ]
    assert found == []


def test_callbacks_are_arguments_of_constructors() -> None:
    found = [
        f"{source.module}:{line} {target}"
        for source in of_the_broker()
        for line, target in assigned(source.tree)
        if (name := target.rpartition(".")[2]).startswith("on_") and name not in RESPONSES
    ]
    assert found == []
