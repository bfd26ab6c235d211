"""Each promise of docs/security.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)`")


def rows() -> list[str]:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = text.partition("## What Penstock promises, against whom")[2].partition("\n## ")[0]
    return [
        line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| against")
    ]


@pytest.mark.parametrize("row", rows())
def test_a_promise_names_a_test(row: str) -> None:
    found = list(_TEST.finditer(row))
    assert found, "a promise without a test is a wish"
    for each in found:
        path = ROOT / "tests" / each["file"]
        assert path.is_file(), f"there is no {each['file']}"
        names = {
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        assert each["name"] in names, f"{each['file']} has no {each['name']}"


def test_the_policy_links_to_the_promises() -> None:
    """The anchor of the heading above."""
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/security.md#what-penstock-promises-against-whom" in policy
    assert len(rows()) >= 20
