"""Messages for tests, as the connector gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from penstock.telemetry.message import format_timestamp
from penstock.telemetry.pipeline.validate import VALUE_SCHEMA

__all__ = ["NOW_MS", "TEMPERATURE", "as_bytes", "frame", "value"]

NOW_MS: Final = 1_800_000_000_000
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
_DDL: Final = (
    f"key BINARY, value STRUCT<{VALUE_SCHEMA}>, malformed BINARY, raw BINARY, topic STRING, partition INT, "
    "offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)


def value(
    at_ms: int = NOW_MS, gpu: str = "GPU-1", metric: str | None = TEMPERATURE, measured: Any = 40.0
) -> Any:
    """A typed value; None in any place is what JSON without it gives."""
    return (format_timestamp(at_ms), metric, gpu, "nvidia0", "host-1", measured, ("H200", "job-1", "team"))


def as_bytes(typed: Any) -> bytearray:
    """Stands for the bytes that such a value was read from: no table has them in this form."""
    return bytearray(repr(typed).encode())


def frame(spark: SparkSession, values: Iterable[Any], first_offset: int = 0) -> DataFrame:
    """Messages in one partition; bytes stand for a value that is no sample."""
    rows = []
    for offset, each in enumerate(values, first_offset):
        malformed = bytearray(each) if isinstance(each, bytes) else None
        typed, raw = (each, as_bytes(each)) if malformed is None else (None, malformed)
        rows.append((bytearray(b"k"), typed, malformed, raw, "t", 0, offset, None, 0))
    return spark.createDataFrame(rows, _DDL)
