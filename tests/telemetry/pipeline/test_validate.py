from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.telemetry.message import format_timestamp
from penstock.telemetry.pipeline.shard import ROWS
from penstock.telemetry.pipeline.validate import REASONS, judge, validate
from tests.telemetry.pipeline.messages import NOW_MS, messages, value

AHEAD_MS = 60_000


def test_a_sample_goes_on_typed_and_by_the_number_of_its_field() -> None:
    renamed = value(metric_name="DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    found = judge(messages([value(), renamed]), NOW_MS)
    about: dict[str, str | None] = {
        "hostname": "host-1",
        "device": "nvidia0",
        "pci_bus_id": "00000000:18:00.0",
        "model": "H200",
        "workload": "job-1",
        "job": "job-1",
    }
    about |= {"pod": None, "namespace": None}
    sample = {"gpu_id": "GPU-1", "field": 150, "at": NOW_MS, "value": 40.0, **about, "reason": None}
    expected = [{**sample, "topic": "t", "partition": 0, "offset": at, "raw": None} for at in (0, 1)]
    assert found.to_pylist() == expected
    assert found.schema == ROWS


def at(moment_ms: int) -> bytes:
    return value(timestamp=format_timestamp(moment_ms))


BLANK = 0x7FFFFFFFFFFFFFF0
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
CASES: list[tuple[bytes | None, str | None]] = [
    (b"{}{}", "not a sample"),
    (b"", "not a sample"),
    (None, "not a sample"),
    (value(value="40"), "not a sample"),
    (value(labels=["no", "labels"]), "not a sample"),
    (value(labels={"numbers": 1, "are": None}), None),
    (value(gpu_id=None), "no GPU"),
    (value(gpu_id=""), "no GPU"),
    (value(metric_name="DCGM_FI_DEV_NO_SUCH"), "unknown metric"),
    (value(metric_name=None), "unknown metric"),
    (value(timestamp=None), "no time"),
    (value(timestamp="yesterday"), "no time"),
    (value(timestamp="2027-01-15T08:00:00"), "no time"),
    (value(timestamp="2027-01-15T09:00:00+01:00"), None),
    (at(NOW_MS + AHEAD_MS), None),
    (at(NOW_MS + AHEAD_MS + 1), "from the future"),
    (value(value=None), "no value"),
    (value(value=float(BLANK)), "blank"),
    (value(value=151.0), "out of range"),
    (value(value=-1.0), "out of range"),
    # The first reason counts.
    (value(gpu_id=None, metric_name="DCGM_FI_DEV_NO_SUCH", value=None), "no GPU"),
    # Above what says "blank" for 32 bits: this field has 64.
    (value(metric_name=ENERGY, value=float(0x7FFFFFF0)), None),
    (value(metric_name=ENERGY, value=float(BLANK)), "blank"),
    # A double has a blank of its own.
    (value(metric_name="DCGM_FI_DEV_POWER_USAGE", value=140737488355328.0), "blank"),
    (value(metric_name="up", value=1), None),
    (value(metric_name="up", value=2), "out of range"),
]


def test_a_malformed_sample_keeps_its_bytes_and_gets_a_reason() -> None:
    found = judge(messages([message for message, _ in CASES]), NOW_MS + AHEAD_MS)
    assert found["reason"].to_pylist() == [reason for _, reason in CASES]
    assert {reason for _, reason in CASES if reason} == set(REASONS)
    assert found["raw"].to_pylist() == [message if reason else None for message, reason in CASES]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_message_is_judged_alike_alone(case: int) -> None:
    message, reason = CASES[case]
    assert judge(messages([message]), NOW_MS + AHEAD_MS)["reason"].to_pylist() == [reason]


def test_a_gpu_has_one_task_and_every_message_one(spark: SparkSession) -> None:
    sent = [value(gpu_id=f"GPU-{number % 20}") for number in range(60)] + [b"{}", b""]
    rows = spark.createDataFrame(pa.Table.from_batches([messages(sent)])).repartition(3)
    blocks = validate(rows, 4, NOW_MS, AHEAD_MS).collect()
    shards: dict[int, set[str | None]] = {}
    offsets = []
    for block in blocks:
        found = pa.ipc.open_stream(bytes(block.rows)).read_all()
        shards.setdefault(block.task, set()).update(found["gpu_id"].to_pylist())
        offsets += found["offset"].to_pylist()
    assert sorted(offsets) == list(range(62))
    assert sum(block.read for block in blocks) == 62
    gpus = [gpu for owned in shards.values() for gpu in owned if gpu is not None]
    assert len(gpus) == len(set(gpus)) == 20
    assert len(shards) > 1
