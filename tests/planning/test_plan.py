"""A whole plan: the numbers of the seeds, a year of growth, notes, and an explanation of every number."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.model.config import BROKER_KEYS
from penstock.planning.plan import make_plan
from penstock.planning.workload import REBUILD_BYTES_S, Hardware
from tests.planning.samples import coefficients, plan, workload


def test_the_numbers_of_a_million_messages_for_a_week() -> None:
    """1 GB/s x 7 x 86,400 = 604.8 TB, and 1.81 PB in three replicas."""
    figures = {figure.key: figure for figure in plan(fan_out=3, zones=3).figures}
    assert figures["bytes_per_second"].value == 1e9
    assert figures["stored_bytes_once"].value == 604.8e12
    assert figures["stored_bytes_once"].text == "604.8 TB"
    assert figures["stored_bytes"].value == 1814.4e12
    assert figures["stored_bytes"].text == "1.81 PB"


def test_every_figure_has_a_formula_with_numbers() -> None:
    for figure in plan(zones=3).figures:
        assert figure.formula and figure.text
        assert re.search(r"[0-9]", figure.formula) or figure.key in ("voters", "cores_per_machine")
    for need in plan(zones=3).sizing.needs:
        assert re.search(r"[0-9]", need.formula)


def test_a_year_of_growth() -> None:
    grown = plan(growth=1.1, zones=3)
    assert [each.months for each in grown.year] == [0, 3, 6, 9, 12]
    assert grown.year[-1].sizing.workload.rate == pytest.approx(1e6 * 1.1**12)
    machines = [each.sizing.machines for each in grown.year]
    assert machines == sorted(machines) and machines[-1] > 2 * machines[0]
    assert grown.lasts_months is not None and grown.lasts_months < 12


def test_partitions_are_those_of_the_end_of_the_year() -> None:
    """Keys move to other partitions if partitions are added; so they are all there from the start."""
    grown, now = plan(growth=1.1), plan()
    assert grown.sizing.machines == now.sizing.machines
    assert grown.sizing.partitions >= 3 * now.sizing.partitions
    at_the_end = grown.year[-1].sizing
    assert at_the_end.partitions <= grown.sizing.partitions + at_the_end.brokers


def test_without_growth_there_is_no_year() -> None:
    assert [each.months for each in plan().year] == [0]
    assert plan().lasts_months is None


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"replicas": 1}, "one replica"),
        ({"zones": 2}, "min.insync.replicas=2 are refused; use 3 zones"),
        ({"zones": 2}, "2 zones: one of them has 3 of the 5 voters"),
        ({"zones": 2, "replicas": 2}, "so the plan does not hold without that zone; use 3 zones"),
        ({"rate": 100.0}, "no machine is left to rebuild"),
        ({"zones": 3}, "not those of a lost zone"),
    ],
)
def test_notes_name_the_assumptions_of_the_plan(changes: dict[str, Any], part: str) -> None:
    assert any(part in note for note in plan(**changes).notes)


def test_fast_partitions_need_a_faster_rebuild() -> None:
    fast = coefficients(append_s_per_gb=0.05, fetch_s_per_gb=0.01, replicate_s_per_gb=0.1)
    load = workload(retention_s=60.0, batch_bytes=1_000_000, rate=10e6, fan_out=0)
    notes = make_plan(load, Hardware(network_bytes_s=50e9), fast).notes
    assert any("set penstock.balance.bytes.per.second above that" in note for note in notes)


def test_many_partitions_are_noted() -> None:
    tiny = Hardware(disk_bytes=10**11, disks=24)
    assert any("one request creates at most 10,000" in note for note in plan(tiny).notes)


def test_the_page_cache_has_no_more_than_the_stored_data() -> None:
    """A minute of 1 GB/s in three replicas is 180 GB; a machine has its third, and a spread of 10 %."""
    sizing = plan(retention_s=60.0).sizing
    assert sizing.machines == 3
    assert sizing.cache_bytes == pytest.approx(1.1 * 180e9 / 3)
    assert plan(retention_s=60.0, cached_s=30.0).sizing.cache_bytes == pytest.approx(1.1 * 90e9 / 3)


def test_more_memory_than_common_machines_have_is_noted() -> None:
    assert any("of memory per machine is more than" in note for note in plan(retention_s=3600.0).notes)
    assert not any("memory" in note for note in plan(retention_s=3600.0, cached_s=60.0).notes)


def test_a_rebuild_that_is_too_fast_for_the_machines_is_noted() -> None:
    assert BROKER_KEYS["penstock.balance.bytes.per.second"].default == REBUILD_BYTES_S
    assert not any("rebuild of a lost machine" in note for note in plan(zones=3).notes)
    slow = plan(Hardware(network_bytes_s=1e9 / 8), zones=3, retention_s=3600.0, batch_bytes=1000)
    assert any("its network may be too slow" in note for note in slow.notes)


def test_a_machine_with_one_core_shares_it_with_the_system() -> None:
    single = plan(Hardware(cores=1))
    figure = next(figure for figure in single.figures if figure.key == "cores_per_machine")
    assert (figure.value, figure.text) == (1, "1 of 1, shared by the broker and the system")
    assert any("use --cores 2 or more" in note for note in single.notes)
    double = next(f for f in plan(Hardware(cores=2)).figures if f.key == "cores_per_machine")
    assert (double.value, double.text) == (2, "2 of 2, fast ones")


def test_the_document_has_base_units() -> None:
    document = plan(growth=1.1).as_document()
    assert document["figures"]["stored_bytes"] == 1814.4e12
    assert document["machines_by_constraint"][document["binding"]] == max(
        document["machines_by_constraint"].values()
    )
    assert len(document["year"]) == 5
    now, figures = document["year"][0], document["figures"]
    for key in ("machines", "brokers", "disks", "cores_per_machine", "memory_bytes_per_machine"):
        assert now[key] == figures[key]
    for direction in ("in", "out"):
        of_machine = now[f"network_{direction}_bytes_per_second_per_machine"] * now["machines"]
        of_broker = figures[f"network_{direction}_bytes_per_second"] * now["brokers"]
        assert of_machine == pytest.approx(of_broker)
