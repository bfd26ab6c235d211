"""`penstock table run`: the job of a table, as a stream or until the end of its topic."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.interruption import stoppable
from penstock.cli.requirements import require_extra, require_java, require_schemas
from penstock.cli.spark_jobs import make_session, say, supervise, with_ending
from penstock.cli.spark_log import SparkLog

if TYPE_CHECKING:
    from penstock.jobs.session import SessionStart
    from penstock.tables.definition import TableDefinition
    from penstock.tables.job import TableJob
    from penstock.tables.progress import TableProgress

__all__ = ["RunSettings", "require_decoders", "require_tables", "run_table"]

_LOOK_S: Final = 1


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What `penstock table run` is told about its session."""

    master: str
    compact_every: int
    retention_hours: int
    metrics_port: int | None
    retries: int


def require_tables() -> None:
    """Raise a Failure if a library that tables need is missing."""
    for module in ("pyspark", "deltalake", "prometheus_client"):
        require_extra(module, "spark,telemetry")


def require_decoders(definition: TableDefinition) -> None:
    """Raise a Failure if a library that the messages of a table need is missing."""
    if "registry" in (definition.schema, definition.key):
        require_schemas()


def run_table(job: TableJob, settings: RunSettings, log: SparkLog) -> None:
    """Run the query of a table until a signal, or until the end of the topic."""
    require_java()
    from penstock.jobs.session import SessionStart

    start = SessionStart(settings.master)
    has_stopped = False
    try:
        say("starting the JVM of Spark")
        _execute(job, start, settings, log)
        has_stopped = True
    finally:
        start.end(in_order=has_stopped)


def _execute(job: TableJob, start: SessionStart, settings: RunSettings, log: SparkLog) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from penstock.jobs.maintenance import Maintenance
    from penstock.jobs.session import warm_up
    from penstock.jobs.supervision import JvmEnded, QueryFailed
    from penstock.jobs.worker_daemon import preload_planning
    from penstock.tables.job import TableMaintenance
    from penstock.tables.progress import TableProgress, batch_line

    definition = job.definition
    registry = CollectorRegistry()
    progress = TableProgress(registry, definition.name)
    with stoppable() as stop_at_once:
        spark = make_session(start, preload_planning, log)
    say("Spark is up; planning the query")
    if settings.metrics_port is not None:
        start_http_server(settings.metrics_port, "127.0.0.1", registry)
    warm_up(spark)
    tables = TableMaintenance(definition, job.storage_options)
    names = [definition.folder, definition.dead_letters]
    maintenance = Maintenance(spark, tables, names, settings.compact_every, settings.retention_hours)

    def report(batch: Any) -> None:
        progress(batch)
        maintenance(batch)
        typer.echo(batch_line(batch, progress))

    try:
        with stoppable() as stop:
            if not stop_at_once.is_set():
                _keep_running(spark, job, settings, stop, progress, report, log)
    except JvmEnded as error:
        raise log.failure(f"table {definition.name} failed", with_ending(error, start)) from error
    except QueryFailed as error:
        raise log.failure(f"table {definition.name} failed", _with_own_option(error)) from error
    finally:
        maintenance.close()
        with suppress(Exception):  # a JVM that has died cannot stop
            spark.stop()
    typer.echo(progress.summary())


def _with_own_option(error: Exception) -> Exception:
    """The error of a query with the option of this command in place of the source's."""
    text = re.sub("[Ss]et failOnDataLoss=false", "Use `penstock table run --skip-lost`", str(error))
    return type(error)(text)


def _keep_running(
    spark: Any,
    job: TableJob,
    settings: RunSettings,
    stop: Event,
    progress: TableProgress,
    report: Callable[[Any], None],
    log: SparkLog,
) -> None:
    from penstock.jobs.supervision import Retries
    from penstock.tables.job import start

    def attempt(look: Callable[[], None]) -> None:
        query = start(spark, job, report)
        say("the query runs; waiting for its first batch")
        has_ended = False
        while not (has_ended or stop.is_set()):
            has_ended = query.wait(_LOOK_S)
            progress.saw(query.progress())
            look()
        query.stop()

    supervise(
        spark,
        attempt,
        Retries(settings.retries),
        stop,
        lambda: progress.batch_id,
        lambda: None,
        begin=log.mark,
    )
