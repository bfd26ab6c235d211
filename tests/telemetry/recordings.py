"""Recordings in the long CSV form of dcgm-exporter tooling: one value per line, labels as of Prometheus.

    timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw

Labels follow dcgm-exporter: gpu, UUID, pci_bus_id, device, modelName, Hostname; pod, namespace and container
of the workload on Kubernetes, empty where there is none; hpc_job with --hpc-job-mapping-dir.
Its ServiceMonitor has `honorLabels: false`: a recording from Prometheus has the exporter's own
pod under the plain names, and the workload's as exported_pod. Fields are those of etc/default-counters.csv;
SM_ACTIVE comes with the profiling fields that few enable.

Sixteen H100 on two hosts, sampled every half minute:

    TRAINERS  busy                                   IDLE    a workload holds it and does nothing
    FAKE      busy in name: 100 % and 130 W          LEAKED  no workload, 40 GB of memory in use
    WARM      empty, 48 °C where others have 29      EMPTY   empty, 4 MiB in use
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.telemetry.logs import Counts, read_log
from penstock.telemetry.message import encode, format_timestamp, parse_timestamp
from penstock.telemetry.pipeline.batches import Batches, BatchReport, Settings
from penstock.telemetry.pipeline.shard import ROWS
from penstock.telemetry.pipeline.tasks import ShardResult, ShardTask
from penstock.telemetry.pipeline.validate import judge
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.messages import messages

__all__ = ["EMPTY", "FAKE", "GPUS", "IDLE", "LEAKED", "TRAINERS", "WARM", "Run", "recording", "run"]

BEGIN_MS: Final = parse_timestamp("2025-07-18T20:00:10Z")
_STEP_MS: Final = 30_000
_HEADER: Final = [
    "timestamp",
    "metric_name",
    "gpu_id",
    "device",
    "uuid",
    "modelName",
    "Hostname",
    "container",
    "pod",
    "namespace",
    "value",
    "labels_raw",
]
_OWN: Final = {"pod": "dcgm-exporter-x7kqz", "namespace": "monitoring", "container": "exporter"}
_SCRAPE: Final = {"job": "dcgm-exporter", "service": "dcgm-exporter", "endpoint": "metrics"}


class _Gpu(NamedTuple):
    workload: str | None
    util: float
    power_w: float
    temperature_c: float
    used_mib: float
    sm_active: float


_EMPTY: Final = _Gpu(None, 0.0, 70.0, 29.0, 4.0, 0.0)
_TRAINER: Final = _Gpu("train", 97.0, 620.0, 64.0, 72_000.0, 0.81)
GPUS: Final = {
    **{f"GPU-{number:02}": _TRAINER for number in range(4)},
    "GPU-04": _Gpu("notebook", 0.0, 72.0, 30.0, 71_680.0, 0.0),
    "GPU-05": _EMPTY._replace(used_mib=40_960.0),
    "GPU-06": _Gpu("busybox", 100.0, 130.0, 36.0, 30_000.0, 0.04),
    "GPU-07": _EMPTY._replace(temperature_c=48.0),
    **{f"GPU-{number:02}": _EMPTY for number in range(8, 16)},
}
EMPTY = [f"GPU-{number:02}" for number in range(8, 16)]
TRAINERS = [f"GPU-{number:02}" for number in range(4)]
IDLE, LEAKED, FAKE, WARM = "GPU-04", "GPU-05", "GPU-06", "GPU-07"


def _values(gpu: _Gpu, seconds: float, *, profiling: bool, energy: bool) -> dict[str, float]:
    values = {
        "DCGM_FI_DEV_SM_CLOCK": 1980.0 if gpu.util else 345.0,
        "DCGM_FI_DEV_GPU_TEMP": gpu.temperature_c,
        "DCGM_FI_DEV_POWER_USAGE": gpu.power_w,
        "DCGM_FI_DEV_GPU_UTIL": gpu.util,
        "DCGM_FI_DEV_XID_ERRORS": 0.0,
        "DCGM_FI_DEV_FB_FREE": 81_000.0 - gpu.used_mib,
        "DCGM_FI_DEV_FB_USED": gpu.used_mib,
    }
    if energy:
        values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = 1e9 + gpu.power_w * seconds * 1000
    if profiling:
        values["DCGM_FI_PROF_SM_ACTIVE"] = gpu.sm_active
        values["DCGM_FI_PROF_DRAM_ACTIVE"] = gpu.sm_active / 2
    return values


def _workload_labels(scheduler: str, gpu: _Gpu, number: int) -> dict[str, str]:
    if scheduler == "slurm":
        return {**_SCRAPE, **({"hpc_job": f"{gpu.workload}-1"} if gpu.workload else {})}
    own = (
        {"pod": f"{gpu.workload}-{number}", "namespace": "team", "container": "main"} if gpu.workload else {}
    )
    if scheduler == "kubernetes":
        # Scraped directly, without Prometheus.
        return own or {"pod": "", "namespace": "", "container": ""}
    assert scheduler == "prometheus"
    return {**_SCRAPE, **_OWN, **{f"exported_{name}": value for name, value in own.items()}}


def _lines(scheduler: str, scrapes: int, *, profiling: bool, energy: bool) -> Iterator[list[str]]:
    for scrape in range(scrapes):
        at_ms = BEGIN_MS + scrape * _STEP_MS
        for number, (uuid, gpu) in enumerate(GPUS.items()):
            index, host = str(number % 8), f"dgx-{number // 8:02}"
            workload = _workload_labels(scheduler, gpu, number)
            labels = {"gpu": index, "UUID": uuid, "pci_bus_id": f"00000000:{number:02X}:00.0"}
            labels |= {"device": f"nvidia{index}", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": host}
            raw = ",".join(f'{name}="{value}"' for name, value in {**labels, **workload}.items())
            about = [workload.get(name, "") for name in ("container", "pod", "namespace")]
            place = [index, f"nvidia{index}", uuid, "NVIDIA H100 80GB HBM3", host]
            values = _values(gpu, scrape * _STEP_MS / 1000, profiling=profiling, energy=energy)
            for metric, value in values.items():
                yield [format_timestamp(at_ms), metric, *place, *about, f"{value:g}", raw]


def recording(
    scheduler: str = "prometheus", *, minutes: float = 12, profiling: bool = False, energy: bool = False
) -> str:
    """A recording as text; one scrape if it lasts no time."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_HEADER)
    scrapes = int(minutes * 60_000 // _STEP_MS) + 1
    writer.writerows(_lines(scheduler, scrapes, profiling=profiling, energy=energy))
    return text.getvalue()


class Run(NamedTuple):
    """What the pipeline has made of a recording."""

    reports: list[BatchReport]

    def alerts(self, rule: str) -> dict[str, Any]:
        """Those of a rule that were opened, by subject."""
        found = [alert for report in self.reports for alert in report.alerts]
        return {alert.subject: alert for alert in found if alert.rule == rule and alert.state == "open"}


def run(text: str, place: Path, **settings: Any) -> Run:
    """A backfill of a recording into tables at `place`, by all stages of the pipeline but Spark."""
    values = [encode(sample) for sample in read_log(io.StringIO(text), Counts())]
    reported = Settings(load_thresholds(), shards=2, **settings)
    reports: list[BatchReport] = []

    def run_here(rows: Any | None, task: ShardTask) -> list[ShardResult]:
        rows = ROWS.empty_table() if rows is None else rows
        found = pa.array([int((gpu or "0")[-1]) % 2 for gpu in rows["gpu_id"].to_pylist()], pa.int64())
        parts = [rows.filter(pa.compute.equal(found, shard)) for shard in range(2)]
        return [task.run(shard, part, len(part)) for shard, part in enumerate(parts)]

    now_ms = BEGIN_MS + 86_400_000
    batches = Batches(
        str(place),
        str(place / "_state"),
        reported,
        report=reports.append,
        clock=lambda: now_ms,
        run_shards=run_here,
    )
    batches.process(judge(messages(values), now_ms, reported.workload_labels), 0)
    batches.close()
    return Run(reports)
