"""Verdicts on recordings of dcgm-exporter: what a fleet's owner would say of the same GPUs."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.telemetry.logs import Counts, read_log
from penstock.telemetry.queries import fleet
from penstock.telemetry.queries.gpus import find_gpus, latest
from penstock.telemetry.queries.idleness import find_idle
from penstock.telemetry.queries.now import count_states, find_now
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry import recordings
from tests.telemetry.recordings import EMPTY, FAKE, GPUS, IDLE, LEAKED, TRAINERS, WARM, Run, recording, run

REPORTED = load_thresholds()
SCHEDULERS = ("prometheus", "kubernetes", "slurm")
NAMES = {"prometheus": "team/notebook-4/main", "kubernetes": "team/notebook-4/main", "slurm": "notebook-1"}


MINUTES = 8
Made = Callable[..., tuple[Run, TableReader]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A backfill of a recording, once for all tests that look at it."""

    @cache
    def make(scheduler: str = "prometheus", **reported: Any) -> tuple[Run, TableReader]:
        place = tmp_path_factory.mktemp("recording")
        found = run(recording(scheduler, **{"minutes": MINUTES, **reported}), place)
        return found, TableReader(str(place))

    return make


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("profiling", [False, True])
def test_verdicts_of_a_long_recording(scheduler: str, profiling: bool, made: Made) -> None:
    found, _ = made(scheduler, profiling=profiling)
    idle = found.alerts("idle_occupied")
    assert set(idle) == {IDLE, LEAKED}
    assert idle[IDLE].workload == NAMES[scheduler]
    assert idle[IDLE].evidence == f"0 % utilised, held by {NAMES[scheduler]} with 71,680 MiB of memory in use"
    assert (idle[LEAKED].workload, idle[LEAKED].pod) == (None, None)
    assert idle[LEAKED].evidence == "0 % utilised, 40,960 MiB of memory in use"
    fake = found.alerts("fake_busy")
    assert set(fake) == {FAKE}
    evidence = "SM_ACTIVE is 0.04" if profiling else "no SM_ACTIVE; power is 19% of the limit"
    assert fake[FAKE].evidence == f"100 % utilised; {evidence}"
    assert found.alerts("hot") == {}, "GPUs at 48 °C are not hot, whatever others have"
    assert sum(len(report.alerts) for report in found.reports) == 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_workloads_are_in_tables_and_rollups(scheduler: str, made: Made) -> None:
    _, reader = made(scheduler, profiling=False)
    gpus = {gpu.gpu_id: gpu for gpu in find_gpus(reader, latest(reader))}
    assert all(gpus[gpu].workload is None and gpus[gpu].pod is None for gpu in [*EMPTY, WARM, LEAKED])
    assert gpus[IDLE].workload == NAMES[scheduler]
    assert gpus[IDLE].pod == (None if scheduler == "slurm" else "notebook-4")
    by_workload = fleet.utilization(fleet.totals(reader, latest(reader)), "workload")
    trainers = 1 if scheduler == "slurm" else len(TRAINERS)
    assert len(by_workload) == trainers + len((IDLE, FAKE)) + len([None])
    by_pod = {one.group for one in fleet.utilization(fleet.totals(reader, latest(reader)), "pod")}
    assert ("notebook-4" in by_pod) is (scheduler != "slurm")


def test_the_order_of_labels_can_be_changed(tmp_path: Path) -> None:
    run(recording("prometheus", minutes=0), tmp_path, workload_labels=("job",))
    reader = TableReader(str(tmp_path))
    assert {gpu.workload for gpu in find_gpus(reader, latest(reader))} == {"dcgm-exporter"}


@pytest.mark.parametrize("energy", [False, True])
def test_energy_by_counters_or_by_power(energy: bool, made: Made) -> None:
    _, reader = made(energy=True) if energy else made("prometheus", profiling=False)
    found = fleet.energy(fleet.totals(reader, latest(reader)), "gpu")
    used_wh = {one.group: one.energy_wh for one in found}
    assert used_wh == {gpu_id: pytest.approx(gpu.power_w * MINUTES / 60) for gpu_id, gpu in GPUS.items()}
    assert {one.measured_by for one in found} == {"energy counter" if energy else "integrated power"}
    assert found[0].gpu_power_mean_w == pytest.approx(620.0)


def test_idle_views_of_a_long_recording(made: Made) -> None:
    _, reader = made("prometheus", profiling=False)
    found = {one.gpu_id: one for one in find_idle(reader, latest(reader), REPORTED).gpus}
    assert set(found) == {IDLE, LEAKED, FAKE}
    assert (found[FAKE].fake_busy, found[FAKE].evidence) == (True, "no SM_ACTIVE; power is 19% of the limit")
    assert found[IDLE].memory_used_mib == 71_680.0


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("is_long", [False, True])
def test_a_snapshot_needs_one_scrape(scheduler: str, is_long: bool, made: Made) -> None:
    _, reader = made(scheduler, profiling=False) if is_long else made(scheduler, minutes=0)
    found = {one.gpu_id: one for one in find_now(reader, REPORTED)}
    states: dict[str, Any] = {gpu_id: one.state for gpu_id, one in found.items()}
    expected = dict.fromkeys(TRAINERS, "busy") | dict.fromkeys([*EMPTY, WARM], "idle")
    assert states == {**expected, IDLE: "idle_occupied", LEAKED: "idle_occupied", FAKE: "fake_busy"}
    assert count_states(found.values())["busy"] == 4
    assert found[IDLE].memory_used_share == pytest.approx(71_680 / 81_000)
    assert (found[IDLE].workload, found[IDLE].age_s) == (NAMES[scheduler], 0.0)


def test_one_scrape_has_no_energy(made: Made) -> None:
    _, reader = made("prometheus", minutes=0)
    assert {one.energy_wh for one in fleet.energy(fleet.totals(reader, latest(reader)), "host")} == {None}


def test_other_names_of_the_columns() -> None:
    header = "timestamp,metric,gpu,device,uuid,model,host,container,pod,namespace,value,raw labels"
    text = recording(minutes=0)
    renamed = text.replace(text.splitlines()[0], header.replace("raw labels", "raw_labels"), 1)
    first, second = (list(read_log(io.StringIO(each), Counts())) for each in (text, renamed))
    assert first == second != []


def test_recordings_have_their_documented_form() -> None:
    header, first, *_ = recordings.recording(minutes=0).splitlines()
    assert header.startswith(
        "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace"
    )
    assert 'exported_pod=""train-0""' in first
