"""What the runbook says that one sees is what brokers say."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.model.errors import ErrorCode

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").partition("## When something fails")[2]


def test_its_events_are_logged() -> None:
    sources = (ROOT / "src" / "penstock" / "broker").rglob("*.py")
    logged = {
        event
        for source in sources
        for event in re.findall(r'(?:log\.[a-z]+|report)\(\s*"([a-z_]+)"', source.read_text(encoding="utf-8"))
    }
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)", RUNBOOK))
    assert len(named) > 5
    assert named <= logged


def test_its_errors_are_of_the_protocol() -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", RUNBOOK))
    assert named
    assert named <= set(ErrorCode.__members__)


def test_its_entries_say_what_one_sees_and_what_to_do() -> None:
    entries = re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]
    assert len(entries) > 10
    for entry in entries:
        assert "*Do* " in entry, entry
        assert "*You see* " in entry or entry.startswith("Upgrading"), entry
