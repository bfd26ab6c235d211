"""`penstock telemetry prepare`: writes an archive of Spark's classes, for a faster start of the demo."""

from __future__ import annotations

import os
from typing import Final

import typer

from penstock.cli.failure import Failure
from penstock.cli.help_text import examples
from penstock.cli.requirements import require_extra, require_java
from penstock.cli.spark_log import SparkLog

__all__ = ["prepare"]

#: As in the demo: an archive is for one set of options of the JVM.
_OPTIONS: Final = "JAVA_TOOL_OPTIONS"


@examples("penstock telemetry prepare")
def prepare() -> None:
    """Write an archive of Spark's classes for the demo, which then starts faster. Takes a minute."""
    require_java()
    for module in ("pyspark", "deltalake"):
        require_extra(module, "spark,telemetry")
    from penstock.jobs.session import SessionStart, exercise
    from penstock.telemetry.demo.show import JVM
    from penstock.telemetry.pipeline.names import WORKER_DAEMON
    from penstock.telemetry.pipeline.worker_daemon import preload_planning

    os.environ.setdefault(_OPTIONS, JVM[_OPTIONS])
    log = SparkLog.beside("memory://", "")
    start = SessionStart("local[2]", daemon=WORKER_DAEMON, writes_archive=True)
    is_stopped = False
    try:
        with log.taking_over():
            spark = start.session(preload_planning)
            exercise(spark)
            spark.stop()
        is_stopped = True
    finally:
        has_written = start.end(in_order=is_stopped)
    if not has_written:
        raise Failure(f"the JVM has written no archive: see {log.path}")
    typer.echo("sessions of the demo use the archive from now on")
