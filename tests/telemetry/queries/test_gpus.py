"""Which GPUs there are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from penstock.telemetry.queries.gpus import find_gpus, latest
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, Span, instant
from tests.telemetry.queries.tables import write
from tests.telemetry.small_fleet import BEGIN_MS, MINUTES

NEWEST_MS = BEGIN_MS + (MINUTES - 1) * 60_000


def test_every_gpu_has_its_last_known_state(reader: TableReader) -> None:
    found = {gpu.gpu_id: gpu for gpu in find_gpus(reader, latest(reader))}
    assert list(found) == ["GPU-a0", "GPU-a1", "GPU-b0", "GPU-b1"]
    a0, b1 = found["GPU-a0"], found["GPU-b1"]
    assert (a0.hostname, a0.model, a0.job, a0.namespace) == ("host-1", "H200", "train-1", "team")
    assert (b1.hostname, b1.model, b1.job) == ("host-2", "H100", None)
    # Its last minute was 20:59, in the hour that ended at 21:00.
    assert b1.last_seen == instant(BEGIN_MS) + timedelta(hours=1)
    assert a0.last_seen == instant(NEWEST_MS)


def test_silent_gpus_are_not_among_the_newest(reader: TableReader) -> None:
    found = find_gpus(reader, latest(reader, HOUR_MS))
    assert [gpu.gpu_id for gpu in found] == ["GPU-a0", "GPU-a1", "GPU-b0"]


def test_the_newest_span_ends_with_the_newest_sample(reader: TableReader) -> None:
    assert latest(reader, HOUR_MS) == Span(NEWEST_MS + 1 - HOUR_MS, NEWEST_MS + 1)
    assert latest(reader, DAY_MS) == Span(BEGIN_MS, NEWEST_MS + 1)


def test_targets_of_exporters_are_no_gpus(tmp_path: Path) -> None:
    write(tmp_path, 0, BEGIN_MS, field=-1)
    reader = TableReader(str(tmp_path))
    assert find_gpus(reader, latest(reader)) == []
    write(tmp_path, 1, BEGIN_MS, field=150)
    reader = TableReader(str(tmp_path))
    assert [gpu.gpu_id for gpu in find_gpus(reader, latest(reader))] == ["GPU-1"]


def test_no_samples_no_gpus(tmp_path: Path) -> None:
    reader = TableReader(str(tmp_path))
    assert latest(reader) == Span(0, 0)
    assert find_gpus(reader, latest(reader)) == []
