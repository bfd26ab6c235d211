"""The parent of Spark's Python workers, which imports what tasks use before it forks them.

Spark runs `python -m MODULE WORKER` for `spark.python.daemon.module`, and forks its workers from there.
By default each worker imports pyarrow, pandas and the connector by itself, about 1.5 s of CPU. A job whose
tasks import more has a module of its own that calls `run`.

Invariant: nothing here starts a thread before workers are forked. Importing pyarrow and numpy is safe: their
thread pools start with the first use, or survive a fork.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

__all__ = ["preload", "preload_planning", "run"]


def preload() -> None:
    """Import what the tasks of every job use."""
    import pyarrow as pa
    import pyspark.worker

    import penstock.spark.source  # noqa: F401

    # Arrow imports pandas, if there is one, with its first array.
    assert pyspark.worker.main is not None
    assert len(pa.array([0])) == 1


def preload_planning() -> None:
    """Import what Spark's Python processes use on the driver, too."""
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.create_data_source  # noqa: F401

    preload()


def run(preloaded: Callable[[], None]) -> None:
    """Fork workers until Spark ends this process."""
    # Other workers (of planning, one each) need less and live for a moment.
    if sys.argv[1:2] == ["pyspark.worker"]:
        preloaded()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    run(preload)
