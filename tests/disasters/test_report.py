from __future__ import annotations

from pathlib import Path

from disasters import report
from disasters.catalogue import Disaster
from disasters.judge import Examination, Result, Verdict

_KEPT = Result("kept", "nothing much", Verdict.KEPT, 1.5, Examination(930, 930))
_LOST = Result(
    "lost",
    "a folder removed",
    Verdict.LOST,
    20.0,
    Examination(930, 30, 900, commits_lost=3, lacking={1: 900}, refused=(2,), complaints=("slow",)),
    first=Examination(930, 0, 930),
)


def test_a_line_has_the_counts_and_the_losses() -> None:
    line = report.line(_LOST)
    assert line.split()[:6] == ["lost", "930", "30", "900+3c", "20", "LOST"]
    assert "broker 1 lacks 900" in line
    assert "slow" in line


def test_results_survive_a_file_and_replace_those_of_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    report.save([_KEPT, _LOST], path)
    assert report.load(path) == [_KEPT, _LOST]
    better = Result("lost", "a folder removed", Verdict.KEPT, 9.0, Examination(930, 930))
    report.save([better], path)
    assert report.load(path) == [_KEPT, better]


def test_a_published_table_has_a_row_per_disaster_and_a_column_per_system() -> None:
    disasters = [Disaster(r.name, 1, r.done, lambda scene: None) for r in (_KEPT, _LOST)]
    table = report.markdown(disasters, {"Penstock": [_KEPT, _LOST], "Apache Kafka": [_LOST]})
    assert table.splitlines() == [
        "| disaster | Penstock | Apache Kafka |",
        "|---|---|---|",
        "| nothing much | kept | not run |",
        "| a folder removed | **lost** 900 of 930 records and 3 committed offsets "
        "| **lost** 900 of 930 records and 3 committed offsets |",
    ]


def test_a_table_takes_the_place_of_the_one_between_its_marks() -> None:
    page = "before\n<!-- one -->\nold\n<!-- end one -->\nafter\n"
    assert report.publish(page, {"one": "new"}) == page.replace("old", "new")


def test_the_summary_counts_passed_failed_and_unrun_disasters() -> None:
    skipped = Result("skipped", "", Verdict.SKIPPED, 0.1, Examination())
    assert report.summary([_KEPT, _LOST, skipped]) == (
        "1 passed, 1 failed, 1 skipped; 900 acknowledged records lost"
    )
