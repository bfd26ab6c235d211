"""The Spark session of the pipeline, and what starts beside it.

    JVM              starts first, while this process imports PySpark and the pipeline
    worker forks     local sessions only: Python workers are forks of this process
    session          connects to the JVM
    warm-up          starts the workers of all slots while the query is planned

PySpark is imported when a session is made, not with this module.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from penstock.telemetry.pipeline.fork_server import WorkerForks
from penstock.telemetry.pipeline.jvm import DRIVER_OPTIONS, Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionStart", "exercise", "new_session", "warm_up"]

_log: Final = logging.getLogger(__name__)
_WORKER_DAEMON: Final = "penstock.telemetry.pipeline.worker_daemon"
_PYTHON: Final = "PYSPARK_PYTHON"
#: in the path of each of its modules
_PY4J: Final = "/py4j/"
#: Spark's default, and the names of Kafka's clients for logins and private keys
_REDACTED: Final = r"(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|ssl[.]key"
_EXERCISE_S: Final = 10
#: A driver without tasks plans a few queries a minute: optimised code saves less than its compiler costs.
_DRIVER_JVM: Final = "-XX:TieredStopAtLevel=1"
#: Spark looks for data sources of other packages with this command, in two more Python processes.
_NO_LOOKUP: Final = {"PYSPARK_DRIVER_PYTHON": "no-lookup-of-data-sources"}


def session_settings(master: str) -> dict[str, str]:
    """Spark's settings. Without a master, those of spark-submit stay, except for what the pipeline needs."""
    settings = {}
    if master:
        settings = {
            "spark.master": master,
            "spark.ui.showConsoleProgress": "false",
            "spark.ui.enabled": "false",
        }
    if _is_local(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master and not _is_one_process(master):
        settings[DRIVER_OPTIONS] = _DRIVER_JVM
    return {
        **settings,
        "spark.sql.session.timeZone": "UTC",
        # Spark prints the options of a query in plans and logs, with the values of these left out.
        "spark.redaction.regex": _REDACTED,
        "spark.python.daemon.module": _WORKER_DAEMON,
    }


def new_session(master: str, name: str = "penstock-telemetry") -> SparkSession:
    """Make a session for the pipeline."""
    from pyspark.sql import SparkSession

    # Workers must be the interpreter that has this package.
    os.environ.setdefault(_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in session_settings(master).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _keep_quiet_about_lost_jvm(session)
    return session


def _keep_quiet_about_lost_jvm(session: SparkSession) -> None:
    """Keep PySpark and py4j from printing tracebacks when the JVM ends.

    Why: the command itself reports the end of the JVM, in one line. py4j logs to the root logger, which
    prints to standard error unless it has a handler.
    """
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: _log.debug("accumulators_disconnected", exc_info=True)
    others = logging.StreamHandler()
    others.setLevel(logging.WARNING)
    others.addFilter(lambda record: _PY4J not in record.pathname)
    logging.basicConfig(handlers=[others], format="%(message)s")


def warm_up(spark: SparkSession) -> None:
    """Start the Python workers of the session's slots with an empty job, beside the planning of a query."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def run() -> None:
        slots = spark.sparkContext.defaultParallelism
        # The query starts its workers itself if this fails.
        with suppress(PySparkException, Py4JError, ConnectionError):
            spark.range(0, slots, 1, slots).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()

    Thread(target=run, name="warm-up", daemon=True).start()


def exercise(spark: SparkSession) -> None:
    """Run a small stream, so that the JVM loads the classes of one."""

    def batch(rows: Any, _: int) -> None:
        rows.selectExpr("value", "CAST(value % 2 AS INT) AS task").repartitionById(2, "task").mapInArrow(
            lambda batches: batches, "value BIGINT, task INT"
        ).toArrow()

    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    with TemporaryDirectory(prefix="penstock-exercise-") as folder:
        writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", folder)
        query = writer.trigger(processingTime="0 seconds").start()
        query.awaitTermination(_EXERCISE_S)
        query.stop()


class SessionStart:
    """The start of a session: `begin` at once, `session` after all imports, `end` in any case."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._jvm: Jvm | None = None
        self._forks: WorkerForks | None = None

    def begin(self, *, writes_archive: bool = False) -> None:
        """Start the JVM. The standard error of this process becomes that of the JVM."""
        environment = dict(_NO_LOOKUP)
        if _is_one_process(self._master) and _PYTHON not in os.environ and WorkerForks.are_possible():
            self._forks = WorkerForks()
            environment[_PYTHON] = os.environ[_PYTHON] = self._forks.python
        settings = session_settings(self._master)
        self._jvm = Jvm.start(settings, environment, writes_archive=writes_archive)

    def session(self, preload: Callable[[], None]) -> SparkSession:
        """Connect to the JVM. Requires that this process has no other threads yet."""
        if self._forks is not None:
            closes = [self._jvm.standard_input] if self._jvm is not None else []
            self._forks.serve(preload, closes)
        if self._jvm is not None:
            self._jvm.attach()
        session = new_session(self._master)
        if self._jvm is not None:
            self._jvm.detach()
        return session

    def jvm_ending(self) -> str | None:
        """How the JVM has ended, as the rest of a sentence; None if it runs or is not of this process."""
        return self._jvm.ending() if self._jvm is not None else None

    def end(self, *, in_order: bool) -> bool:
        """End the JVM and all workers. `in_order` says that the session was stopped.

        Returns whether the JVM has written a new archive of its classes.
        """
        has_written = self._jvm is not None and self._jvm.end(in_order=in_order)
        if self._forks is not None:
            self._forks.close()
            os.environ.pop(_PYTHON, None)
        return has_written


def _is_one_process(master: str) -> bool:
    """Whether tasks run inside the driver."""
    return master == "local" or master.startswith("local[")


def _is_local(master: str) -> bool:
    return master.startswith("local")
