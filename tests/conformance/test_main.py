"""What the command records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import __main__ as command
from conformance.outcome import Outcome, Results, Verdict, load, save

PASSED = Outcome(Verdict.PASSED, 1.0)
SUITE = "librdkafka"


def test_parts_that_run_at_the_same_time_keep_each_other_s_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "results.json"

    def run_while_another_part_is_recorded(
        wanted: object, goals: object, recorded: object, keep: Callable[[Results], None]
    ) -> Results:
        save(record, {SUITE: {"0002_unkpart": PASSED}})
        found = {SUITE: {"0001_multiobj": PASSED}}
        keep(found)
        return found

    monkeypatch.setattr(command, "RESULTS", record)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(command, "_run", run_while_another_part_is_recorded)
    assert command.main(["--update", "0001"]) == 0
    assert load(record) == {SUITE: {"0001_multiobj": PASSED, "0002_unkpart": PASSED}}
    assert "`0002_unkpart` | broker | passed" in (tmp_path / "page.md").read_text()
