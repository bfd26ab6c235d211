"""Runs the tasks of a batch in this process: what Spark does with them is tested where Spark is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.telemetry.pipeline.columns import shard_of_gpu, task_of_shard
from penstock.telemetry.pipeline.shard import ROWS
from penstock.telemetry.pipeline.tasks import ShardResult, ShardTask

__all__ = ["run_here"]


def run_here(messages: list[dict[str, Any]] | None, task: ShardTask) -> list[ShardResult]:
    """Every task of a batch, over rows that have passed validation."""
    parts: list[list[dict[str, Any]]] = [[] for _ in range(task.shards)]
    for row in messages or ():
        gpu_id = row["gpu_id"]
        parts[task_of_shard(shard_of_gpu(gpu_id), task.shards) if gpu_id else 0].append(row)
    results = [
        task.run(number, pa.Table.from_pylist(part, ROWS), len(part)) for number, part in enumerate(parts)
    ]
    # As the driver gets them.
    return [ShardResult.of(result.row().to_pylist()[0]) for result in results]
