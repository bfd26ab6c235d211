"""Detectors on simulated fleets, whose faults are known, and rules on the smallest fleets that show them."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.logs import Counts, read_log
from penstock.telemetry.message import format_timestamp
from penstock.telemetry.pipeline.detectors import Alert
from penstock.telemetry.pipeline.detectors.features import ABOUT, FEATURES, FEATURES_SCHEMA, STEP_MS, features
from penstock.telemetry.pipeline.detectors.fleet_rules import FLEET_RULES, RULES
from penstock.telemetry.pipeline.detectors.gpu_rules import GPU_RULES
from penstock.telemetry.pipeline.detectors.memory import Memory
from penstock.telemetry.pipeline.detectors.rules import group_median
from penstock.telemetry.thresholds import Thresholds, WrongThresholds, load_thresholds
from tests.telemetry.pipeline.detecting import HELD_OUT, READ_MS, START_MS, Detectors, scores

XID = FEATURES.index(230)


def rows(step: int, values: np.ndarray[Any, Any], gpus: list[str] | None = None) -> Any:
    """One step of GPUs of one host without a job."""
    names = gpus if gpus is not None else [f"GPU-{number}" for number in range(len(values))]
    steps = [START_MS + step * STEP_MS] * len(values)
    nothing = [[None] * len(values)] * (len(ABOUT) - 1)
    return pa.table(
        [steps, steps, names, ["host"] * len(values), *nothing, *values.T], schema=FEATURES_SCHEMA
    )


def reported(alerts: list[Alert]) -> list[tuple[str, str, str]]:
    return [(alert.rule, alert.subject, alert.state) for alert in alerts]


def with_code(code: float) -> np.ndarray[Any, Any]:
    values = np.full((1, len(FEATURES)), np.nan)
    values[0, XID] = code
    return values


def test_an_xid_is_a_change_of_the_last_code() -> None:
    detectors = Detectors(load_thresholds("xid: {clear_s: 0}"))
    seen = [
        reported(detectors.advance(rows(step, with_code(code)), READ_MS, READ_MS))
        for step, code in enumerate((31, 31, 79, 79, 48, 0))
    ]
    opened, resolved = [("xid", "GPU-0", "open")], [("xid", "GPU-0", "resolved")]
    # What was there at first says nothing; another code is news although the first is still open.
    assert seen == [[], [], opened, [], opened, resolved]


def test_a_gpu_is_silent_while_others_are_not_and_then_is_not() -> None:
    detectors = Detectors(load_thresholds())
    both, alone = np.full((2, len(FEATURES)), 1.0), np.full((1, len(FEATURES)), 1.0)
    detectors.advance(rows(0, both), READ_MS, READ_MS)
    quiet = [
        alert for step in range(1, 8) for alert in detectors.advance(rows(step, alone), READ_MS, READ_MS)
    ]
    assert reported(quiet) == [("silent", "GPU-1", "open")]
    assert quiet[0].at_ms == START_MS + 7 * STEP_MS
    assert ("silent", "GPU-1", "resolved") in reported(detectors.advance(rows(8, both), READ_MS, READ_MS))


def test_the_rest_of_a_step_does_not_turn_time_back() -> None:
    detectors = Detectors(load_thresholds())
    detectors.advance(rows(0, np.zeros((3, len(FEATURES)))), READ_MS, READ_MS)
    one = np.zeros((1, len(FEATURES)))
    assert reported(detectors.advance(rows(6, one), READ_MS, READ_MS)) == [
        ("silent", "GPU-1", "open"),
        ("silent", "GPU-2", "open"),
    ]
    (resolved,) = detectors.advance(rows(5, one, ["GPU-2"]), READ_MS, READ_MS)
    assert (resolved.subject, resolved.state) == ("GPU-2", "resolved")
    assert resolved.at_ms == START_MS + 7 * STEP_MS


def test_a_fast_clock_of_one_gpu_makes_no_other_gpu_silent() -> None:
    detectors = Detectors(load_thresholds())
    one = np.zeros((1, len(FEATURES)))
    read_at_ms = START_MS + STEP_MS
    detectors.advance(rows(0, one), read_at_ms, read_at_ms)
    assert reported(detectors.advance(rows(25, one, ["GPU-fast"]), read_at_ms, read_at_ms)) == []
    assert reported(detectors.advance(rows(1, one), read_at_ms, read_at_ms)) == []


def test_gpus_are_not_silent_in_a_batch_of_many_later_steps() -> None:
    """As in a backfill: each step is judged at its own time, not at the time that the batch reaches."""
    detectors = Detectors(load_thresholds())
    four = np.zeros((4, len(FEATURES)))
    fast = rows(720, four[:1], ["GPU-fast"])
    first_ms, last_ms = START_MS + STEP_MS, START_MS + 31 * STEP_MS
    assert reported(detectors.advance(pa.concat_tables([rows(0, four), fast]), 0, first_ms)) == []
    steps = pa.concat_tables([rows(step, four) for step in range(1, 31)])
    assert reported(detectors.advance(steps, first_ms, last_ms)) == []


def test_the_time_in_which_a_gpu_was_silent_is_not_idle_time() -> None:
    """Idle before and after ten minutes without a sample: what it did meanwhile is not known."""
    idle = np.full((1, len(FEATURES)), np.nan)
    idle[0, FEATURES.index(203)], idle[0, FEATURES.index(252)] = 0.0, 50_000.0
    detectors = Detectors(load_thresholds())
    steps = [*range(2), *range(60, 92)]
    found = [alert for step in steps for alert in detectors.advance(rows(step, idle), READ_MS, READ_MS)]
    (alert,) = [each for each in found if each.rule == "idle_occupied"]
    assert alert.since_ms == START_MS + 60 * STEP_MS
    assert alert.at_ms == START_MS + 91 * STEP_MS


def test_memory_survives_being_kept() -> None:
    detectors = Detectors(load_thresholds())
    detectors.advance(rows(0, with_code(0)), READ_MS, READ_MS)
    again = Detectors(load_thresholds(), detectors.kept)
    assert reported(again.advance(rows(1, with_code(79)), READ_MS, READ_MS)) == [("xid", "GPU-0", "open")]


def test_features_are_the_last_values_of_a_step() -> None:
    columns = {"gpu_id": ["b", "a", "a", "a"], "field": [150, 150, 150, 101], "at": [0, 9_000, 1_000, 10_000]}
    about = {name: ["a"] * 4 for name in ABOUT}
    samples = pa.table({**columns, "value": [1.0, 3.0, 2.0, 5.0], **about})
    found = features(samples).select(["step", "gpu_id", "150"]).to_pylist()
    assert [tuple(row.values())[:2] for row in found] == [(0, "a"), (10_000, "a"), (0, "b")]
    assert [row["150"] for row in found if row["step"] == 0] == [3.0, 1.0]


def test_other_fields_are_no_features() -> None:
    others = [number for number in FIELDS if number not in FEATURES]
    size = len(others)
    columns = {"gpu_id": ["a"] * size, "field": pa.array(others, pa.int32()), "at": [0] * size}
    about = {name: ["a"] * size for name in ABOUT}
    samples = pa.table({**columns, "value": [1.0] * size, **about})
    (row,) = features(samples).to_pylist()
    assert min(others) < 0 and max(others) > max(FEATURES), "there are some on either side"
    assert all(np.isnan(row[str(number)]) for number in FEATURES)


def test_group_median_is_numpys() -> None:
    groups, values = np.array([1, 0, 1, 1, 0]), np.array([3.0, 1.0, 5.0, 4.0, 2.0])
    assert group_median(groups, values).tolist() == [4.0, 1.5, 4.0, 4.0, 1.5]


@pytest.mark.parametrize("text", ["hot: {no_such: 1}", "hot: {for_s: soon}", "- a list", "hot: ["])
def test_a_wrong_threshold_is_named(text: str) -> None:
    with pytest.raises(WrongThresholds, match="threshold"):
        load_thresholds(text)


@pytest.mark.slow
def test_faults_of_a_small_fleet_are_found() -> None:
    for fault_class, score in scores([13], hosts=40).items():
        assert score.recall >= 0.95, fault_class
        assert score.precision >= 0.9, fault_class


@pytest.mark.slow
def test_hot_gpus_are_found_where_few_have_the_same_power() -> None:
    """Small fleets, whose GPUs draw from 60 to 700 W: most have no peers at their own power."""
    score = scores(range(200, 208), hosts=12)["hot"]
    assert score.faults >= 5
    assert (score.recall, score.precision) == (1.0, 1.0)


PROFILING, LIMITS = (1002,), (160, 164)


@pytest.mark.slow
@pytest.mark.parametrize("without", [PROFILING, PROFILING + LIMITS])
def test_fake_busy_is_found_without_profiling_fields(without: tuple[int, ...]) -> None:
    """By power against the limit that the GPU, or its model, has."""
    score = scores([13], hosts=40, without=without)["fake_busy"]
    assert score.recall >= 0.6
    assert score.precision >= 0.9


def busy(power_w: list[float]) -> np.ndarray[Any, Any]:
    values = np.full((len(power_w), len(FEATURES)), np.nan)
    values[:, FEATURES.index(203)], values[:, FEATURES.index(155)] = 99.0, power_w
    return values


def test_peers_decide_which_gpu_is_fake_busy_without_a_known_limit() -> None:
    detectors = Detectors(load_thresholds("fake_busy: {for_s: 0}"))
    (alert,) = detectors.advance(rows(0, busy([300.0] * 8 + [100.0])), READ_MS, READ_MS)
    assert (alert.rule, alert.subject) == ("fake_busy", "GPU-8")
    assert alert.evidence == "99 % utilised; no SM_ACTIVE; power is 33% of the median of busy peers"
    # Too few peers say nothing.
    few = Detectors(load_thresholds("fake_busy: {for_s: 0}"))
    assert few.advance(rows(0, busy([300.0] * 3 + [100.0])), READ_MS, READ_MS) == []


def test_a_field_or_a_rule_that_the_state_does_not_have_is_as_if_never_seen() -> None:
    detectors = Detectors(load_thresholds("idle_occupied: {for_s: 1000}"))
    detectors.advance(rows(0, with_code(0)), READ_MS, READ_MS)
    memory = Memory.from_table(detectors.kept[0], ("new", "xid"))
    assert (memory.last[0, XID], memory.held.shape) == (0.0, (1, 2, 3))
    metadata = {b"features": json.dumps([150, 230]), b"rules": json.dumps(["xid"])}
    held, values = (
        pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
        pa.array([[40.0, 31.0]], pa.list_(pa.float64(), 2)),
    )
    older = detectors.kept[0]
    for name, column in (("last", values), ("smooth", values), ("held", held)):
        older = older.set_column(older.column_names.index(name), name, column)
    memory = Memory.from_table(older.replace_schema_metadata(metadata), ("new", "xid"))
    assert memory.last[0, XID] == 31.0
    assert np.isnan(memory.last[0, FEATURES.index(203)])
    assert memory.held[0].tolist() == [[0, 0, 0], [1, 2, 3]]


def test_the_state_of_a_version_without_places_is_read() -> None:
    detectors = Detectors(load_thresholds())
    detectors.advance(rows(0, with_code(0)), READ_MS, READ_MS)
    gpus, peers = (each.drop_columns(["device", "pci_bus_id"]) for each in detectors.kept)
    again = Detectors(load_thresholds(), (gpus, peers))
    (alert,) = again.advance(rows(1, with_code(79)), READ_MS, READ_MS)
    assert (alert.rule, alert.device, alert.pci_bus_id) == ("xid", None, None)


def test_alerts_name_the_place_of_the_gpu() -> None:
    detectors, places = Detectors(load_thresholds()), {"device": "nvidia3", "pci_bus_id": "0000:5e:00.0"}
    found = []
    for step, code in enumerate((0, 79)):
        named = rows(step, with_code(code))
        for name, place in places.items():
            named = named.set_column(named.column_names.index(name), name, pa.array([place]))
        found += detectors.advance(named, READ_MS, READ_MS)
    # Silence is judged on the driver; the code of an XID in tasks.
    found += detectors.advance(rows(20, with_code(0), ["GPU-other"]), READ_MS, READ_MS)
    assert {(each.rule, each.device, each.pci_bus_id) for each in found if each.subject == "GPU-0"} == {
        ("xid", "nvidia3", "0000:5e:00.0"),
        ("silent", "nvidia3", "0000:5e:00.0"),
    }


@pytest.mark.slow
def test_faults_are_found_on_seeds_that_were_not_used_for_tuning() -> None:
    """Fleets of 800 GPUs; `make detectors` counts those of 2,000."""
    for fault_class, score in scores(HELD_OUT, hosts=100).items():
        assert score.recall >= 0.95, fault_class
        assert score.precision >= 0.9, fault_class


def test_phases_of_a_real_h200_are_recognised() -> None:
    """A capture with nvidia-smi: no profiling metrics, no counters of violations, phases of half a minute."""
    files = resources.files("penstock.telemetry.samples")
    recorded = list(
        read_log(files.joinpath("h200_nvidia_smi.csv").read_text().splitlines(), Counts(), "host")
    )
    columns = {
        "gpu_id": [sample.gpu_id for sample in recorded],
        "field": pa.array([sample.field.id for sample in recorded], pa.int32()),
        "at": [sample.timestamp_ms for sample in recorded],
        "value": [float(sample.value) for sample in recorded],
        **{name: ["capture"] * len(recorded) for name in ABOUT},
    }
    quick = "{idle_occupied: {for_s: 20, clear_s: 0}, power_throttle: {for_s: 10, clear_s: 10}}"
    alerts = Detectors(load_thresholds(quick)).advance(features(pa.table(columns)), READ_MS, READ_MS)
    began = [
        (alert.rule, format_timestamp(alert.since_ms)[11:19]) for alert in alerts if alert.state == "open"
    ]
    # Idle at 18:00, 19:53 and 23:03; matrix products at the power limit from 18:38 on. Bursts are neither.
    assert began == [
        ("idle_occupied", "00:17:50"),
        ("power_throttle", "00:18:30"),
        ("idle_occupied", "00:19:50"),
        ("idle_occupied", "00:23:00"),
    ]
    ended = {alert.rule for alert in alerts if alert.state == "resolved"}
    assert ended == {"idle_occupied", "power_throttle"}


def test_each_detector_has_a_severity_limits_and_a_row_in_the_documentation() -> None:
    detectors = set(RULES)
    assert len(RULES) == len(GPU_RULES) + len(FLEET_RULES)
    page = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    parts = {name for name in Thresholds.__struct_fields__ if not name.endswith("_s")}
    assert parts - {"hosts"} == detectors
    first_cells = re.findall(r"^\| (`[^|]+`) \| ", page, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} >= detectors
