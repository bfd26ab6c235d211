"""Pages about how it works name tests, mutants, and fields that are not Kafka's: all of them are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "internals"
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in (path.stem, *re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))
}


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`((?:test_|…)[\w…]+)`", (PAGES / page).read_text(encoding="utf-8"))
    patterns = [re.escape(name).replace("…", r"\w*") for name in named]
    assert [p for p in patterns if not any(re.fullmatch(p, test) for test in TESTS)] == []


def test_the_mutants_on_the_pages_are_the_existing_ones() -> None:
    guards = {mutant.guard for mutant in MUTANTS}
    table = (PAGES / "simulation.md").read_text(encoding="utf-8").partition("| guard | missed after |")[2]
    assert (
        set(re.findall(r"^\| ([^|]+) \| (?:\d+ seeds?|none of 150|not hunted) \|", table, re.MULTILINE))
        == guards
    )
    rules = (PAGES / "controller.md").read_text(encoding="utf-8").partition("## The rules")[2]
    cells = re.findall(r"mutants? (`[^|]+) \|", rules)
    named = {guard for cell in cells for guard in re.findall(r"`([^`]+)`", cell)}
    assert len(named) == 8
    assert named <= guards


def test_every_field_of_our_own_is_documented() -> None:
    page = (PAGES / "node.md").read_text(encoding="utf-8").partition("## What is not Kafka's")[2]
    wire = (ROOT / "src" / "penstock" / "wire").rglob("*.py")
    own = {
        name
        for path in wire
        for name in re.findall(r"^    (\w+): .*tag=OWN_TAGS", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(own) > 3
    assert {name for name in own if f"`{name}`" not in page} == set()
