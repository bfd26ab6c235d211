"""What the runbook says that one sees is what brokers say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.broker.base.logs import get_logger
from penstock.model.errors import ErrorCode
from tests.rehearsals import IN_PROCESSES, REHEARSALS, recorded_events

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").partition("## When something fails")[2]
_LOGGED = re.compile(r'(?:log\.[a-z]+|report|_warn)\(\s*"([a-z_]+)"')


def test_its_events_are_logged() -> None:
    sources = (ROOT / "src" / "penstock" / "broker").rglob("*.py")
    logged = {event for source in sources for event in _LOGGED.findall(source.read_text(encoding="utf-8"))}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)", RUNBOOK))
    assert len(named) > 5
    assert named <= logged


def test_its_events_are_rehearsed() -> None:
    """The recorder in `tests/conftest.py` checks that each of these tests logs its event."""
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)", RUNBOOK))
    rehearsed: set[str] = set()
    for table in (REHEARSALS, IN_PROCESSES):
        for path, tests in table.items():
            source = (ROOT / path).read_text(encoding="utf-8")
            for test, events in tests.items():
                function = test.partition("[")[0]
                assert re.search(rf"^def {function}\(", source, re.MULTILINE), f"{path} has no {function}"
                assert table is REHEARSALS or all(event in source for event in events)
                rehearsed.update(events)
    assert rehearsed == named


@pytest.mark.parametrize("is_logged", [True, False])
def test_a_rehearsal_without_its_event_fails(is_logged: bool) -> None:
    log = get_logger("scrubber")
    with recorded_events() as seen:
        if is_logged:
            log.debug("corruption_found", partition="t-0")
    log.debug("corruption_repaired")
    assert seen == ({"corruption_found"} if is_logged else set())


def test_its_errors_are_of_the_protocol() -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", RUNBOOK))
    assert named
    assert named <= set(ErrorCode.__members__)


def test_entries_of_the_runbook_have_symptoms_and_actions() -> None:
    entries = re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]
    assert len(entries) > 10
    for entry in entries:
        assert "*Do* " in entry, entry
        assert "*You see* " in entry or entry.startswith("Upgrading"), entry
