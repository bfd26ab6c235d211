"""Recordings: both layouts, what is in them that is no value, and the times at which they are sent again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.logs import Counts, UnknownLayout, read_log
from penstock.telemetry.message import Sample, parse_timestamp
from penstock.telemetry.pacing import Pace
from penstock.telemetry.replay import Replay, Shard
from penstock.telemetry.samples import sample_path
from tests.telemetry.recorder import Recorder

UUID = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
OTHER = "GPU-00000000-0000-0000-0000-000000000001"
COLUMNS = (
    "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw"
)
LABELS = f'DCGM_FI_DRIVER_VERSION="535.129.03",UUID="{UUID}",gpu="0",modelName="NVIDIA H100",hpc_job="42"'


def dcgm(*rows: tuple[str, str, str, str]) -> str:
    """A snapshot of (time, metric, uuid, value)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS.split(","))
    for at, metric, uuid, value in rows:
        writer.writerow([at, metric, "0", "nvidia0", uuid, "NVIDIA H100", "dgx", "", "", "", value, LABELS])
    return text.getvalue()


def read(text: str) -> tuple[list[Sample], Counts]:
    counts = Counts()
    return list(read_log(text.splitlines(keepends=True), counts)), counts


def test_a_snapshot_of_dcgm() -> None:
    samples, _ = read(dcgm(("2025-07-18T20:42:34Z", "DCGM_FI_DEV_GPU_UTIL", UUID, "85")))
    labels = {"driver_version": "535.129.03", "model_name": "NVIDIA H100", "hpc_job": "42"}
    at = parse_timestamp("2025-07-18T20:42:34Z")
    assert samples == [Sample(at, FIELDS[203], UUID, "nvidia0", "dgx", 85.0, labels)]


def test_every_row_of_a_snapshot_is_counted() -> None:
    at = "2025-07-18T20:42:34Z"
    text = dcgm(
        (at, "DCGM_FI_DEV_GPU_UTIL", UUID, "85"),
        (at, "DCGM_FI_DEV_GPU_UTIL", UUID, "NaN"),
        (at, "DCGM_FI_DEV_GPU_UTIL", UUID, ""),
        (at, "DCGM_FI_DEV_GPU_UTIL", UUID, "many"),
        ("today", "DCGM_FI_DEV_GPU_UTIL", UUID, "1"),
        (at, "node_load1", UUID, "1"),
    )
    samples, counts = read(text + "short,row\n")
    assert len(samples) == 1
    assert counts == Counts(samples=1, blank=2, foreign=1, malformed=3)


def test_the_capture_of_an_h200() -> None:
    path = sample_path("sample:h200")
    assert path is not None
    counts = Counts()
    with path.open() as lines:
        samples = list(read_log(lines, counts))
    rows = 676
    assert {sample.gpu_id for sample in samples} == {"GPU-a96f7a21-5cb2-b38d-b51c-def811237f69"}
    assert counts.blank == rows, "retired pages, which this GPU does not have"
    assert counts.malformed == 0
    assert counts.samples == len(samples) == rows * 28
    first = {
        s.field.id: s.value for s in samples if s.timestamp_ms == parse_timestamp("2026-11-15T00:17:52.197Z")
    }
    assert (first[203], first[155], first[157], first[150], first[100]) == (0.0, 127.58, 127.36, 37.0, 1980.0)
    assert (first[112], first[190], first[250], first[396]) == (1.0, 0.0, 143771.0, 0.0)
    assert {s.value for s in samples if s.field.id == 112} == {0.0, 1.0, 4.0}
    assert samples[0].labels == {
        "model_name": "NVIDIA H200",
        "driver_version": "580.159.04",
        "pci_bus_id": "00000000:00:06.0",
    }


@given(st.integers(0, 100), st.booleans(), st.sampled_from(["", " [%]"]))
def test_units_may_be_missing(value: int, unit: bool, column_unit: str) -> None:
    cell = f"{value} %" if unit else str(value)
    samples, _ = read(
        f"timestamp, uuid, utilization.gpu{column_unit}\n2026/11/15 00:17:52.197, {UUID}, {cell}\n"
    )
    assert [sample.value for sample in samples] == [value]


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "[Unknown Error]", "", "nan"])
def test_the_placeholders_of_nvidia_smi(cell: str) -> None:
    samples, counts = read(f"timestamp, uuid, pstate\n2026/11/15 00:17:52.197, {UUID}, {cell}\n")
    assert (samples, counts.blank) == ([], 1)


def test_a_line_that_was_cut_off_is_malformed() -> None:
    samples, counts = read(f"timestamp, uuid, pstate\n2026/11/15 00:17:52.197, {UUID}\nx, {UUID}, P0\n")
    assert (samples, counts.malformed) == ([], 2)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        samples, counts = read(text)
    except UnknownLayout:
        return
    assert not samples or counts.malformed < len(text.splitlines())


# -- sending it again


def recording(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(
        dcgm(
            ("2025-07-18T20:42:30Z", "DCGM_FI_DEV_GPU_UTIL", UUID, "1"),
            ("2025-07-18T20:42:30Z", "DCGM_FI_DEV_GPU_UTIL", OTHER, "2"),
            ("2025-07-18T20:42:35Z", "DCGM_FI_DEV_GPU_UTIL", UUID, "3"),
            ("2025-07-18T20:42:40Z", "DCGM_FI_DEV_GPU_UTIL", OTHER, "4"),
        )
    )
    return path


def noting(seconds: list[float]) -> Pace:
    def pace(second: float) -> bool:
        seconds.append(second)
        return True

    return pace


def test_times_and_pace_are_the_recordings(tmp_path: Path) -> None:
    recorder, seconds = Recorder(), list[float]()
    replay = Replay(recording(tmp_path), recorder)
    replay.run(1, noting(seconds))
    assert seconds == [0.0, 5.0, 10.0]
    start = parse_timestamp("2025-07-18T20:42:30Z")
    assert [m.timestamp_ms - start for m in recorder.messages] == [0, 0, 5000, 10000]
    assert [sample.value for sample in recorder.samples()] == [1.0, 2.0, 3.0, 4.0]
    assert (replay.sent, replay.elsewhere) == (4, 0)


def test_a_new_stamp_moves_all_times_alike(tmp_path: Path) -> None:
    recorder = Recorder()
    Replay(recording(tmp_path), recorder, restamp_ms=1_000_000).run(1, lambda second: True)
    assert [s.timestamp_ms for s in recorder.samples()] == [1_000_000, 1_000_000, 1_005_000, 1_010_000]


def test_no_round_repeats_the_times_of_another(tmp_path: Path) -> None:
    recorder, seconds = Recorder(), list[float]()
    Replay(recording(tmp_path), recorder, restamp_ms=0).run(3, noting(seconds))
    assert [s.timestamp_ms for s in recorder.samples()] == [
        *(0, 0, 5_000, 10_000),
        *(15_000, 15_000, 20_000, 25_000),
        *(30_000, 30_000, 35_000, 40_000),
    ]
    assert seconds == [float(second) for second in range(0, 45, 5)]


@given(st.integers(1, 7))
def test_shards_share_out_the_gpus(of: int) -> None:
    gpus = [f"GPU-{number}" for number in range(50)]
    owners = [[shard for shard in range(of) if Shard(shard, of).has(gpu)] for gpu in gpus]
    assert all(len(one) == 1 for one in owners)


def test_a_shard_has_all_of_a_gpu_and_counts_the_rest(tmp_path: Path) -> None:
    replays = [Replay(recording(tmp_path), Recorder(), Shard(number, 2)) for number in range(2)]
    for replay in replays:
        replay.run(1, lambda second: True)
        assert replay.sent + replay.elsewhere == 4
    assert sum(replay.sent for replay in replays) == 4


def test_a_replay_without_end_is_stopped_by_its_pace(tmp_path: Path) -> None:
    recorder = Recorder()
    Replay(recording(tmp_path), recorder, restamp_ms=0).run(None, lambda second: second < 100.0)
    assert max(s.timestamp_ms for s in recorder.samples()) == 95_000


def test_an_empty_recording_ends(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(COLUMNS + "\n")
    replay = Replay(path, Recorder())
    replay.run(None, lambda second: True)
    assert replay.sent == 0
