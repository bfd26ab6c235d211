"""Hosts that lack GPUs, by what they had and by what other hosts have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.detectors import Alert
from penstock.telemetry.pipeline.detectors.features import FEATURES, FEATURES_SCHEMA, STEP_MS
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.detecting import READ_MS, START_MS, Detectors

LIMITS = load_thresholds("missing_gpu: {absent_s: 20, for_s: 10, clear_s: 0}")


def rows(step: int, gpus: Mapping[str, Sequence[int]], model: str = "NVIDIA H200") -> Any:
    """One step of the GPUs of these hosts, each with its utilisation."""
    names = [(host, f"{host}/{number}") for host, numbers in gpus.items() for number in numbers]
    values = np.full((len(names), len(FEATURES)), np.nan)
    values[:, FEATURES.index(203)] = 50.0
    at = [START_MS + step * STEP_MS] * len(names)
    about = {"hostname": [host for host, _ in names], "model": [model] * len(names)}
    about["device"] = [f"nvidia{gpu.rpartition('/')[2]}" for _, gpu in names]
    about["pci_bus_id"] = [f"0000:{gpu.rpartition('/')[2]}" for _, gpu in names]
    columns = {"step": at, "at": at, "gpu_id": [gpu for _, gpu in names], **about}
    columns |= {str(field): values[:, place] for place, field in enumerate(FEATURES)}
    nothing = [None] * len(names)
    return pa.table([columns.get(name, nothing) for name in FEATURES_SCHEMA.names], schema=FEATURES_SCHEMA)


def run(steps: list[Any], detectors: Detectors | None = None) -> list[Alert]:
    detectors = detectors or Detectors(LIMITS)
    found = [alert for step in steps for alert in detectors.advance(step, READ_MS, READ_MS)]
    return [alert for alert in found if alert.rule == "missing_gpu"]


def test_a_host_that_has_lost_a_gpu_is_reported_and_then_resolved() -> None:
    whole, lacking = {"a": range(8), "b": range(8)}, {"a": range(7), "b": range(8)}
    gone = [rows(step, lacking) for step in range(3, 10)]
    opened, resolved = run([*(rows(step, whole) for step in range(3)), *gone, rows(10, whole)])
    assert (opened.subject, opened.state, opened.hostname, opened.severity) == ("a", "open", "a", "warning")
    assert (opened.measure, opened.evidence) == (1.0, "7 of 8 GPUs; missing: a/7 (nvidia7, 0000:7)")
    # Last heard in step 2, absent from step 4 on, and for ten seconds.
    assert opened.at_ms == START_MS + 6 * STEP_MS
    assert (resolved.subject, resolved.state) == ("a", "resolved")


def test_a_host_that_disappears_is_reported_by_the_time_of_the_others() -> None:
    steps = [rows(0, {"a": range(8), "b": range(8)}), *(rows(step, {"b": range(8)}) for step in range(1, 6))]
    (opened,) = run(steps)
    assert (opened.subject, opened.measure) == ("a", 8.0)
    assert opened.evidence == "none of its 8 GPUs is heard"


def test_a_gpu_that_was_never_heard_is_missing_by_the_host_s_peers() -> None:
    hosts = {name: range(8) for name in "abcd"}
    (opened,) = run([rows(step, {**hosts, "e": range(7)}) for step in range(4)])
    assert (opened.subject, opened.evidence) == ("e", "7 of 8 GPUs; hosts of NVIDIA H200 have 8")


def test_hosts_of_another_shape_lack_nothing() -> None:
    """A virtual machine with one GPU or four; too few peers; and peers that do not agree."""
    hosts = {name: range(8) for name in "abcdefgh"}
    assert run([rows(step, {**hosts, "vm": [0], "half": range(4)}) for step in range(4)]) == []
    assert run([rows(step, {"a": range(8), "b": range(8), "c": range(7)}) for step in range(4)]) == []
    mixed = {"a": range(8), "b": range(8), "c": range(6), "d": range(6), "e": range(7)}
    assert run([rows(step, mixed) for step in range(4)]) == []


def test_a_gpu_that_was_replaced_is_not_missing() -> None:
    """The host has eight again, one with another id: what was taken out is not expected for ever."""
    before = [rows(step, {"a": range(8), "b": [0]}) for step in range(2)]
    down = [rows(step, {"b": [0]}) for step in range(2, 8)]
    after = [rows(step, {"a": [*range(7), 99], "b": [0]}) for step in range(8, 14)]
    states = [alert.state for alert in run([*before, *down, *after])]
    assert states == ["open", "resolved"]


def test_a_gpu_that_left_long_ago_is_not_expected() -> None:
    limits = load_thresholds("missing_gpu: {absent_s: 20, past_s: 50, for_s: 0, clear_s: 0}")
    steps = [rows(0, {"a": range(8)}), *(rows(step, {"a": range(7)}) for step in range(1, 9))]
    assert [alert.state for alert in run(steps, Detectors(limits))] == ["open", "resolved"]


def test_the_past_of_a_host_survives_a_restart_of_the_pipeline() -> None:
    detectors = Detectors(LIMITS)
    assert run([rows(0, {"a": range(8)})], detectors) == []
    again = Detectors(LIMITS, detectors.kept)
    (opened,) = run([rows(step, {"a": range(7)}) for step in range(1, 6)], again)
    assert opened.measure == 1.0


def test_the_state_of_an_older_version_expects_nothing() -> None:
    detectors = Detectors(LIMITS)
    run([rows(0, {"a": range(8)})], detectors)
    gpus, peers = detectors.kept
    again = Detectors(LIMITS, (gpus, peers.drop_columns(["companions"])))
    assert run([rows(step, {"a": range(7)}) for step in range(1, 6)], again) == []


def test_samples_of_exporters_are_no_gpus() -> None:
    """Their target is in the place of the GPU, and they have none of a GPU's values."""
    target = rows(0, {"a": [99]})
    target = target.set_column(target.column_names.index("203"), "203", pa.array([np.nan]))
    steps = [pa.concat_tables([rows(0, {"a": range(8)}), target])]
    assert run([*steps, *(rows(step, {"a": range(8)}) for step in range(1, 8))]) == []


def test_the_file_of_thresholds_says_how_many_gpus_a_host_should_have() -> None:
    """More than any host has; fewer than it had, because some were taken out; and one that is gone."""
    text = """
hosts:
  a: {gpus: 8, rack: R1}
  "b*": {gpus: 6}
missing_gpu: {absent_s: 20, for_s: 10, clear_s: 0}
"""
    steps = [rows(0, {"a": range(7), "b": range(8), "b2": range(6)})]
    steps += [rows(step, {"a": range(7), "b": range(6), "b2": range(5)}) for step in range(1, 8)]
    found = {alert.subject: alert.evidence for alert in run(steps, Detectors(load_thresholds(text)))}
    assert found == {
        "a": "7 of 8 GPUs, rack R1; the file of thresholds has 8",
        "b2": "5 of 6 GPUs; missing: b2/5 (nvidia5, 0000:5)",
    }
