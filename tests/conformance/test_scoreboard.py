"""The record only improves, and the page says what the record says."""

from __future__ import annotations

from pathlib import Path

from conformance.goals import Goal, Goals, load_goals
from conformance.outcome import (
    REFERENCE,
    RESULTS,
    SECURED_REFERENCE,
    SECURED_RESULTS,
    Outcome,
    Results,
    Verdict,
    load,
    one_line,
    save,
)
from conformance.scoreboard import PAGE, compare, merge, render

PASSED = Outcome(Verdict.PASSED, 1.0)
FAILED = Outcome(Verdict.FAILED, 1.0, "no | way")


def test_a_run_has_gains_and_losses() -> None:
    recorded: Results = {"s": {"a": PASSED, "b": FAILED, "c": PASSED}}
    change = compare({"s": {"a": FAILED, "b": PASSED, "c": PASSED, "d": PASSED}}, recorded)
    assert (change.gained, change.lost) == (["b", "d"], ["a"])


def test_a_skip_of_a_passing_test_is_a_loss() -> None:
    skipped = Outcome(Verdict.SKIPPED, 0.0, "not today")
    assert compare({"s": {"a": skipped}}, {"s": {"a": PASSED}}).lost == ["a"]


def test_a_test_that_cannot_be_built_here_keeps_its_verdict() -> None:
    unbuilt = Outcome(Verdict.SKIPPED, 0.0, "RapidJSON >=1.1.0 not available")
    recorded: Results = {"s": {"a": PASSED}}
    assert compare({"s": {"a": unbuilt}}, recorded).lost == []
    assert merge({"s": {"a": unbuilt}}, recorded, lower=True) == recorded


def test_a_pass_is_lowered_only_on_demand() -> None:
    recorded: Results = {"s": {"a": PASSED, "b": FAILED}}
    found: Results = {"s": {"a": FAILED, "b": PASSED}}
    assert merge(found, recorded, lower=False) == {"s": {"a": PASSED, "b": PASSED}}
    assert merge(found, recorded, lower=True) == {"s": {"a": FAILED, "b": PASSED}}


def test_tests_that_did_not_run_keep_their_record() -> None:
    assert merge({"s": {"a": PASSED}}, {"s": {"b": PASSED}}, lower=True) == {"s": {"a": PASSED, "b": PASSED}}


def test_the_page_counts_and_names_failing_tests() -> None:
    goals = Goals(("broker",), frozenset(), (Goal("s", "a", "broker", 1.0), Goal("s", "b", "broker", 1.0)))
    page = render(goals, {"s": {"a": PASSED, "b": FAILED}}, {"s": {"a": PASSED, "b": PASSED}})
    assert "| s | broker | 2 | 1 | 2 |" in page
    assert "| **all** | | **2** | **1** | **2** |" in page
    assert "| `b` | broker | **failed** | 1.0 | passed | 1.0 | no \\| way |" in page


def test_tests_that_do_not_pass_are_listed_first() -> None:
    tests = tuple(Goal("s", name, "broker", 1.0) for name in "abc")
    page = render(
        Goals(("broker",), frozenset(), tests), {"s": {"a": PASSED, "b": FAILED}}, {"s": {"b": PASSED}}
    )
    listed = page.partition("## What does not pass")[2].partition("## s")[0].splitlines()
    assert [line for line in listed if line.startswith("| s ")] == [
        "| s | `b` | **failed** | passed | no \\| way |",
        "| s | `c` | not run | not run |  |",
    ]


def test_the_page_names_the_missing_feature_of_a_skipped_test() -> None:
    tests = (Goal("s", "a", "broker", 1.0, needs=("groups",)), Goal("s", "b", "broker", 1.0, needs=("acls",)))
    page = render(Goals(("broker",), frozenset({"groups"}), tests), {"s": {"b": FAILED}}, {})
    assert "| `a` | broker | not run |  | not run |  | waits for groups |" in page
    assert "| `b` | broker | **failed** | 1.0 | not run |  | no \\| way |" in page


def test_a_note_explains_why_a_test_cannot_pass_here() -> None:
    tests = tuple(Goal("s", name, "broker", 1.0, note="wants the moon") for name in "ab")
    page = render(Goals(("broker",), frozenset(), tests), {"s": {"a": PASSED, "b": FAILED}}, {})
    assert "| `a` | broker | passed | 1.0 | not run |  |  |" in page
    assert "| `b` | broker | **failed** | 1.0 | not run |  | wants the moon |" in page


def test_results_survive_the_file(tmp_path: Path) -> None:
    results: Results = {"s": {"a": PASSED, "b": FAILED}}
    save(tmp_path / "results.json", results)
    assert load(tmp_path / "results.json") == results


def test_reasons_are_one_bounded_line() -> None:
    assert one_line("a\n  b") == "a b"
    assert len(one_line("x" * 10_000)) == 400


def test_every_recorded_test_is_a_goal() -> None:
    known = {(goal.suite, goal.test) for goal in load_goals().tests}
    for path in (RESULTS, REFERENCE):
        assert {(suite, test) for suite, tests in load(path).items() for test in tests} <= known


def test_the_committed_page_is_the_one_that_the_record_gives() -> None:
    secured = load(SECURED_RESULTS), load(SECURED_REFERENCE)
    assert PAGE.read_text() == render(load_goals(), load(RESULTS), load(REFERENCE), secured)


def test_verdicts_over_sasl_ssl_have_a_section_of_their_own() -> None:
    tests = tuple(Goal("librdkafka", name, "broker", 1.0) for name in ("a", "b", "c"))
    goals = Goals(("broker",), frozenset(), tests)
    plain: Results = {"librdkafka": {"a": PASSED, "b": PASSED, "c": PASSED}}
    secured: Results = {"librdkafka": {"a": PASSED, "b": FAILED}}
    page = render(goals, plain, {}, (secured, {"librdkafka": {"b": PASSED}}))
    section = page.partition("## Over SASL_SSL")[2].partition("\n## ")[0]
    assert "2 tests ran, 1 passed. 2 pass over plaintext." in section
    assert "| librdkafka | `b` | **failed** | passed | no \\| way |" in section
    assert "Over SASL_SSL" not in render(goals, plain, {})
