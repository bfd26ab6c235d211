"""The Spark session of a job, and what starts beside it.

    worker forks     local sessions only: Python workers are forks of this process
    session          PySpark starts the JVM
    warm-up          starts the workers of all slots while the query is planned

PySpark is imported when a session is made, not with this module.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from penstock.jobs.startup import ClassArchive, WorkerForks, find_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DRIVER_OPTIONS", "SessionStart", "describe_exit", "exercise", "new_session", "warm_up"]

#: options of the driver's JVM, before those of the user
DRIVER_OPTIONS: Final = "spark.driver.defaultJavaOptions"

_log: Final = logging.getLogger(__name__)
#: the module that forks Python workers, on all machines
_WORKER_DAEMON: Final = "penstock.jobs.worker_daemon"
_PYTHON: Final = "PYSPARK_PYTHON"
_SAFE_PATH: Final = "PYTHONSAFEPATH"
#: in the path of each of its modules
_PY4J: Final = "/py4j/"
#: Spark's default, and the names of Kafka's clients for logins and private keys
_REDACTED: Final = r"(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|ssl[.]key"
_EXERCISE_S: Final = 10
#: A driver without tasks plans a few queries a minute: optimised code saves less than its compiler costs.
_DRIVER_JVM: Final = "-XX:TieredStopAtLevel=1"
#: For the JVM alone. With the first, Spark looks for data sources of other packages, in two more Python
#: processes. The second has the options of a small JVM by which `spark-submit` builds its command.
_JVM_ENVIRONMENT: Final = {
    "PYSPARK_DRIVER_PYTHON": "no-lookup-of-data-sources",
    "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: Under `spark-submit` there is a JVM already, or its options are those of the user.
_OF_SPARK_SUBMIT: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
#: how long the JVM may take to end, and to write its archive
_END_S, _WRITE_S = 30.0, 300.0
#: how long a JVM whose connections are closed may take to end
_LOST_S: Final = 5.0
#: of Spark: `SparkExitCode`
_EXIT_CODES: Final = {50: "an uncaught exception", 52: "out of memory", 53: "no folder for temporary files"}


def session_settings(master: str, daemon: str = _WORKER_DAEMON) -> dict[str, str]:
    """Spark's settings. Without a master, those of spark-submit stay, except for what jobs need."""
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
        "spark.python.daemon.module": daemon,
        f"spark.executorEnv.{_SAFE_PATH}": "1",
    }


def new_session(
    master: str, name: str = "penstock", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Make a session, with `settings` in place of `session_settings(master)`."""
    from pyspark.sql import SparkSession

    # Workers must be the interpreter that has this package.
    os.environ.setdefault(_PYTHON, sys.executable)
    # They import nothing from their working directory.
    os.environ.setdefault(_SAFE_PATH, "1")
    builder = SparkSession.builder.appName(name)
    for key, value in (settings or session_settings(master)).items():
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
    """The start of a session: `session` after all imports, and `end` in any case."""

    def __init__(self, master: str, *, daemon: str = _WORKER_DAEMON, writes_archive: bool = False) -> None:
        self._master = master
        self._daemon = daemon
        self._writes_archive = writes_archive
        self._forks: WorkerForks | None = None
        #: whether the JVM of this process is that of this session; another part of the process may have one
        self._owns_jvm = False
        #: the archive that the JVM writes at its end
        self._archive: ClassArchive | None = None

    def session(self, preload: Callable[[], None]) -> SparkSession:
        """Start the JVM, and connect to it. Requires that this process has no other threads yet.

        The standard error of this process becomes that of the JVM.
        """
        if _is_one_process(self._master) and _PYTHON not in os.environ and WorkerForks.are_possible():
            self._forks = WorkerForks()
            os.environ[_PYTHON] = self._forks.python
            self._forks.serve(preload)
        self._owns_jvm = _jvm() is None
        with _environment_of_jvm():
            return new_session(self._master, settings=self._settings())

    def _settings(self) -> dict[str, str]:
        """The settings, with the options for an archive of classes if there is or will be one."""
        settings = session_settings(self._master, self._daemon)
        home = find_spark_home()
        archive = None if home is None or _has_jvm() else find_archive(home)
        if archive is None or not (self._writes_archive or archive.exists):
            return settings
        if self._writes_archive:
            archive.path.parent.mkdir(parents=True, exist_ok=True)
            self._archive = archive
        options = archive.writing if self._writes_archive else archive.reading
        return {**settings, DRIVER_OPTIONS: f"{settings.get(DRIVER_OPTIONS, '')} {options}".strip()}

    def jvm_ending(self) -> str | None:
        """How the JVM has ended, as the rest of a sentence; None if it runs or is not of this process."""
        process = _jvm()
        if process is None:
            return None
        try:
            return describe_exit(process.wait(_LOST_S))
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, in_order: bool) -> bool:
        """End the JVM that `session` has started, and all workers. `in_order`: the session was stopped.

        A JVM that does not end in order is killed. Returns whether it has written a new archive of classes.
        """
        process = _jvm() if self._owns_jvm else None
        if process is not None:
            in_order = _end_jvm(process, in_order, _END_S if self._archive is None else _WRITE_S)
        if self._forks is not None:
            self._forks.close()
            os.environ.pop(_PYTHON, None)
        if self._archive is None:
            return False
        if process is not None and in_order:
            return self._archive.keep()
        self._archive.discard()
        return False


def find_spark_home() -> Path | None:
    """The folder of Spark, as PySpark finds it; None if there is no whole Spark."""
    found = find_spec("pyspark")
    places = [os.environ.get("SPARK_HOME"), *(found.submodule_search_locations or () if found else ())]
    homes = [Path(place) for place in places if place]
    return next((home for home in homes if (home / "bin" / "spark-submit").is_file()), None)


def describe_exit(code: int) -> str:
    """The exit status of a JVM, as `subprocess` has it, as the rest of a sentence."""
    if code < 0:
        name = signal.Signals(-code).name
        by = ", by a user or by the kernel for lack of memory" if -code == signal.SIGKILL else ""
        return f"was killed with {name}{by}"
    known = f" ({_EXIT_CODES[code]})" if code in _EXIT_CODES else ""
    return f"has ended with exit code {code}{known}"


def _has_jvm() -> bool:
    return any(name in os.environ for name in _OF_SPARK_SUBMIT)


@contextmanager
def _environment_of_jvm() -> Iterator[None]:
    """A JVM that starts meanwhile has these variables; those that the user has set stay."""
    added = {} if _has_jvm() else {k: v for k, v in _JVM_ENVIRONMENT.items() if k not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM that PySpark has started in this process, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def _end_jvm(process: subprocess.Popen[bytes], in_order: bool, patience_s: float) -> bool:
    """End a JVM, which does so when its standard input is closed; returns true if it has ended in order."""
    assert process.stdin is not None, "PySpark starts it with a pipe"
    process.stdin.close()
    try:
        if in_order:
            process.wait(patience_s)
    except subprocess.TimeoutExpired:
        in_order = False
    if not in_order:
        process.kill()
        process.wait()
    return in_order


def _is_one_process(master: str) -> bool:
    """Whether tasks run inside the driver."""
    return master == "local" or master.startswith("local[")


def _is_local(master: str) -> bool:
    return master.startswith("local")
