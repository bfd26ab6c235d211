"""Python processes for the Spark session of the tests, forked from one that has imported PySpark and Arrow.

Spark starts several Python processes for each query, and each takes a second of CPU to import PySpark, Arrow
and pandas. The forks import Penstock's own modules themselves: a missing import must fail here, too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.jobs.startup import WorkerForks

__all__ = ["worker_python"]


@contextmanager
def worker_python() -> Iterator[str]:
    """The interpreter for Spark's Python processes.

    The server of the forks has a parent of its own: the process of the tests has threads.
    """
    if not WorkerForks.are_possible():
        yield sys.executable
        return
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark_workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()


def _preload() -> None:
    import pyarrow as pa
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.commit_data_source_write
    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.data_source_pushdown_filters
    import pyspark.sql.worker.lookup_data_sources
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.sql.worker.python_streaming_sink_runner
    import pyspark.sql.worker.write_into_data_source
    import pyspark.worker  # noqa: F401

    # Arrow imports pandas with its first array.
    assert len(pa.array([0])) == 1


def _main() -> None:
    forks = WorkerForks()
    forks.serve(_preload)
    print(forks.python, flush=True)
    sys.stdin.read()
    forks.close()


if __name__ == "__main__":
    _main()
