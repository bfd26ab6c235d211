"""Each module of the broker has a row in a "where to change what" table, and each row names a module."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PAGES = ROOT / "docs" / "internals"


def rows() -> set[str]:
    """The paths in the tables, relative to `src/penstock/broker` or `src/penstock`."""
    found = set()
    for page in PAGES.glob("*.md"):
        section = page.read_text(encoding="utf-8").partition("## Where to change what")[2]
        section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
        for row in re.findall(r"^\|.*\|$", section, re.MULTILINE):
            found |= set(re.findall(r"`([\w/]+\.py)`", row))
    return found


def test_each_module_of_the_broker_has_a_row() -> None:
    broker = SOURCE / "broker"
    modules = {str(path.relative_to(broker)) for path in broker.rglob("*.py") if path.name != "__init__.py"}
    named = {path.removeprefix("broker/") for path in rows()}
    assert modules - named == set(), "add a row to a table in docs/internals"


def test_each_row_names_a_module() -> None:
    missing = {
        path for path in rows() if not (SOURCE / path).exists() and not (SOURCE / "broker" / path).exists()
    }
    assert missing == set()


def test_the_places_to_add_something_exist() -> None:
    page = (PAGES / "adding.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([\w/]+\.(?:py|js|yaml))`", table))
    there = [str(path) for folder in (SOURCE, ROOT / "deploy") for path in folder.rglob("*.*")]
    assert {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)} == set()
    assert len(named) > 20
