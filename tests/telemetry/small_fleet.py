"""Tables of a small fleet whose every number is known, made by the pipeline itself, without Spark.

Four GPUs on two hosts say something every minute for two and a half hours from 20:00 on:

    GPU-a0  host-1  job train-1  80 % busy, 600 W; an XID at 20:30 that is gone at 21:00
    GPU-a1  host-1  job train-1  idle
    GPU-b0  host-2  job infer-1  95 % busy in name, hardly any multiprocessor at work
    GPU-b1  host-2  no job       40 % busy, throttled by heat for a tenth of the time; silent from 21:00 on
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.telemetry.message import parse_timestamp
from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here

__all__ = ["BEGIN_MS", "FIELDS", "MINUTES", "SmallPipeline", "make_tables"]

BEGIN_MS: Final = parse_timestamp("2025-07-18T20:00:00Z")
MINUTES: Final = 150
_BATCH_MINUTES: Final = 50
_MINUTE_MS: Final = 60_000
TEMPERATURE, POWER, ENERGY, UTIL, XID, THERMAL, SM_ACTIVE = 150, 155, 156, 203, 230, 241, 1002
FIELDS: Final = (TEMPERATURE, POWER, ENERGY, UTIL, XID, THERMAL, SM_ACTIVE)


class _Behaviour(NamedTuple):
    hostname: str
    model: str
    job: str | None
    util: float
    sm_active: float
    power_w: float
    temperature: float
    throttled_share: float = 0.0
    xid_minutes: range = range(0)
    silent_from: int = MINUTES + 1


GPUS: Final = {
    "GPU-a0": _Behaviour("host-1", "H200", "train-1", 80.0, 0.7, 600.0, 60.0, xid_minutes=range(30, 60)),
    "GPU-a1": _Behaviour("host-1", "H200", "train-1", 0.0, 0.0, 100.0, 35.0),
    "GPU-b0": _Behaviour("host-2", "H200", "infer-1", 95.0, 0.1, 300.0, 50.0),
    "GPU-b1": _Behaviour("host-2", "H100", None, 40.0, 0.4, 200.0, 70.0, throttled_share=0.1, silent_from=60),
}


def samples(first: int = 0, end: int = MINUTES) -> Iterator[dict[str, Any]]:
    """What is said from one minute to before another, as rows that have passed validation."""
    for minute in range(first, end):
        for gpu_id, gpu in GPUS.items():
            if minute >= gpu.silent_from:
                continue
            values = {
                TEMPERATURE: gpu.temperature,
                POWER: gpu.power_w,
                ENERGY: gpu.power_w * 60 * 1000 * minute,
                UTIL: gpu.util,
                XID: 79.0 if minute in gpu.xid_minutes else 0.0,
                THERMAL: gpu.throttled_share * 60e9 * minute,
                SM_ACTIVE: gpu.sm_active,
            }
            about = {"hostname": gpu.hostname, "model": gpu.model, "workload": gpu.job, "job": gpu.job}
            about |= {"pod": gpu.job and f"{gpu.job}-0", "namespace": "team"}
            for field, value in values.items():
                measured = {"field": field, "at": BEGIN_MS + minute * _MINUTE_MS, "value": value}
                place = {"device": "nvidia0", "pci_bus_id": "00000000:18:00.0"}
                yield {"gpu_id": gpu_id, **place, "reason": None, **about, **measured}


class SmallPipeline:
    """The pipeline over the small fleet, minute by minute."""

    def __init__(self, place: Path, minute: int = 0, batch_id: int = 0) -> None:
        self._batches = Batches(
            str(place),
            str(place / "_queries" / "test"),
            Settings(load_thresholds(), shards=2),
            clock=lambda: BEGIN_MS + MINUTES * _MINUTE_MS,
            run_shards=run_here,
        )
        self._minute, self._batch_id, self._offset = minute, batch_id, 0

    def run(self, minutes: int) -> None:
        """Continue until so many minutes are sent. The last one is a batch, and closes windows before it."""
        self.run_batches([*range(self._minute, minutes - 1, _BATCH_MINUTES), minutes - 1, minutes])

    def run_batches(self, edges: list[int]) -> None:
        """A batch from each of these minutes to the next."""
        for first, end in pairwise(edges):
            rows = list(samples(first, end))
            self._batches.process(
                [
                    {**row, "topic": "t", "partition": 0, "offset": at}
                    for at, row in enumerate(rows, self._offset)
                ],
                self._batch_id,
            )
            self._offset += len(rows)
            self._batch_id += 1
        self._minute = edges[-1]

    def close(self) -> None:
        """Close all windows, as a backfill does at its end."""
        self._batches.close()


def make_tables(place: Path, minutes: int = MINUTES) -> None:
    SmallPipeline(place).run(minutes)
