"""Messages for tests, as the connector gives them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from penstock.telemetry.message import format_timestamp

__all__ = ["NOW_MS", "TEMPERATURE", "messages", "value"]

NOW_MS: Final = 1_800_000_000_000
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"


def value(**changes: Any) -> bytes:
    """A sample's JSON; a change to None leaves the field out."""
    sample = {
        "timestamp": format_timestamp(NOW_MS),
        "metric_name": TEMPERATURE,
        "gpu_id": "GPU-1",
        "device": "nvidia0",
        "hostname": "host-1",
        "value": 40.0,
        "labels": {
            "driver_version": "1",
            "model_name": "H200",
            "pci_bus_id": "00000000:18:00.0",
            "hpc_job": "job-1",
        },
    } | changes
    return json.dumps({name: reported for name, reported in sample.items() if reported is not None}).encode()


def messages(values: Iterable[bytes | None], first_offset: int = 0) -> Any:
    """In one partition."""
    sent = list(values)
    columns = {
        "value": pa.array(sent, pa.binary()),
        "topic": pa.array(["t"] * len(sent)),
        "partition": pa.array([0] * len(sent), pa.int32()),
        "offset": pa.array(range(first_offset, first_offset + len(sent)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)
