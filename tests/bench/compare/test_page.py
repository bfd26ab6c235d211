"""The page about other systems, rendered from results."""

from __future__ import annotations

import pytest

from bench.compare.choosing import choosing
from bench.compare.classes import CLASSES, CONTENDERS, class_named
from bench.compare.page import PAGE, lines, page
from bench.compare.workloads import ROWS
from bench.results import COMPARED, SEMANTICS, Run, load, merged


def a_run(**values: dict[str, dict[str, list[float]]]) -> Run:
    named = {row.replace("__", "/").replace("_", "-"): measured for row, measured in values.items()}
    return Run("a machine", {"NATS": "2"}, "abc1234", 1, 1.0, list(CONTENDERS), named, date="2026-01-01")


def test_the_published_page_is_the_one_of_the_results() -> None:
    runs = load(COMPARED)
    assert runs, "bench/results/compare.json has no run"
    assert PAGE.read_text(encoding="utf-8") == page(runs, load(SEMANTICS))


def test_each_row_of_the_results_is_of_one_class() -> None:
    known = {durability.row(row.name) for durability in CLASSES for row in ROWS}
    assert {row for run in load(COMPARED) for row in run.values} <= known
    assert len(known) == len(CLASSES) * len(ROWS)


def test_classes_are_not_mixed_in_a_table() -> None:
    run = a_run(
        cache__produce_1k={"messages/s": {"penstock": [10.0], "nats": [20.0]}},
        synced__produce_1k={"messages/s": {"penstock": [1.0], "nats": [2.0]}},
    )
    cached, synced = (line.values for line in lines(run))
    assert (cached["nats"], synced["nats"]) == ([20.0], [2.0])
    text = page([run])
    first, second = text.index(class_named("cache").title), text.index(class_named("synced").title)
    assert "**20**" in text[first:second]
    assert "**2**" not in text[first:second]


def test_a_system_is_configured_for_a_class_or_absent_with_a_reason() -> None:
    for durability in CLASSES:
        assert not set(durability.settings) & set(durability.absent)
        assert set(durability.settings) | set(durability.absent) == set(CONTENDERS), durability.name


def test_rows_that_we_lose_are_published() -> None:
    run = a_run(
        cache__latency={
            "p50": {"penstock": [0.9, 0.6], "nats": [0.3]},
            "p99": {"penstock": [1.0], "nats": [4.0]},
        }
    )
    lost = page([run]).partition("## Rows that Penstock loses")[2].partition("## Not measured")[0]
    assert "| p50, ms | 0.6 | NATS JetStream 0.3 | × 2 |" in lost
    assert "p99" not in lost


def test_differences_within_noise_have_no_winner() -> None:
    run = a_run(cache__produce_1k={"messages/s": {"penstock": [100.0], "nats": [102.0]}})
    (line,) = lines(run)
    assert line.winner() is None
    assert "None in this run." in page([run])


def test_losses_are_shown_with_the_number_of_acknowledged_messages() -> None:
    run = a_run(
        cache__power={
            "acknowledged": {"nats": [5000.0, 4000.0], "penstock": [100.0]},
            "lost": {"nats": [4000.0, 0.0], "penstock": [0.0]},
        }
    )
    assert "| 0 of 100 | 4,000 of 9,000 |" in page([run])


def test_losses_are_compared_by_their_share_of_acknowledged_messages() -> None:
    run = a_run(
        cache__power={
            "acknowledged": {"penstock": [1000.0], "nats": [10.0], "valkey": [10.0]},
            "lost": {"penstock": [1000.0], "nats": [10.0], "valkey": [5.0]},
        }
    )
    lost = page([run]).partition("## Rows that Penstock loses")[2].partition("## Not measured")[0]
    assert "| lost of those acknowledged | 100 % | Valkey stream 50 % | × 2 |" in lost
    assert "NATS" not in lost


def test_rows_have_the_names_by_which_the_recommendations_call_them() -> None:
    run = a_run(cache__produce_1k={"messages/s": {"penstock": [20.0], "nats": [10.0]}})
    text = page([run])
    assert "| `produce-1k`: produce 1 KB, batched | messages/s |" in text
    assert "- cache: `produce-1k` (messages/s)" in text


def test_a_missing_system_is_named() -> None:
    run = a_run(cache__produce_1k={"messages/s": {"penstock": [1.0]}})
    run.absent["nats"] = "go not found on this machine"
    assert "NATS JetStream was not measured: go not found on this machine." in page([run])


def test_a_part_of_a_run_replaces_its_rows_only() -> None:
    older = a_run(
        cache__latency={"p50": {"penstock": [1.0]}}, cache__start={"ready after": {"penstock": [0.3]}}
    )
    newer = a_run(cache__latency={"p50": {"penstock": [2.0]}})
    assert [list(run.values) for run in merged([older], newer)] == [["cache/start"], ["cache/latency"]]


@pytest.mark.parametrize("contender", CONTENDERS)
def test_every_system_has_a_place_in_the_recommendations(contender: str) -> None:
    text = choosing(lambda name: [f"- a row of {name}"])
    assert f"- a row of {contender}\n" in text
    assert "<!-- wins" not in text
