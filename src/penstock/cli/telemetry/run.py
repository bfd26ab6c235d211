"""`penstock telemetry run|backfill`: runs the pipeline, as a stream or until the end of the topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from penstock.cli.client_config import java_settings
from penstock.cli.completion import topic_names
from penstock.cli.interruption import stoppable
from penstock.cli.option_groups import grouped
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, pairs
from penstock.cli.requirements import require_java
from penstock.cli.telemetry.spark_log import SparkLog

if TYPE_CHECKING:
    from penstock.telemetry.pipeline.batches import Settings
    from penstock.telemetry.pipeline.jobs import Job, Started
    from penstock.telemetry.pipeline.progress import Progress

__all__ = ["backfill", "run"]

_LOOK_S: Final = 1
_BEGAN_S: Final = time.monotonic()

Topic: TypeAlias = Annotated[
    str, typer.Option("--topic", help="Topic of samples.", autocompletion=topic_names)
]
Place: TypeAlias = Annotated[
    str, typer.Option("--tables", metavar="DIR|URL", help="Folder or URL of tables and checkpoints.")
]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", help="Spark master; empty for the one of spark-submit.")
]
ThresholdFile: TypeAlias = Annotated[
    Path | None, typer.Option("--thresholds", help="YAML file that overrides thresholds of the detectors.")
]
Shards: TypeAlias = Annotated[
    int, typer.Option("--shards", min=1, help="Tasks of a batch; may change between runs.")
]
Delay: TypeAlias = Annotated[
    float, typer.Option("--delay", min=0.0, help="Seconds that windows stay open for late samples.")
]
BatchRows: TypeAlias = Annotated[
    int, typer.Option("--batch-rows", min=1, help="Most messages of a batch; limits its memory.")
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of the object store, by deltalake's name, such as AWS_REGION; repeatable.",
    ),
]
SparkLogFile: TypeAlias = Annotated[
    str,
    typer.Option(
        "--spark-log",
        metavar="FILE",
        help="File for the output of Spark's JVM; - for standard error. [default: _queries/spark.log]",
    ),
]
Ahead: TypeAlias = Annotated[
    float, typer.Option("--ahead", min=0.0, help="Seconds that samples may be ahead of the clock.")
]


WorkloadLabels: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workload-labels",
        metavar="LABEL,…",
        help="Labels that name a workload, the first that is there; `pod` is namespace/pod/container. "
        "[default: pod,exported_job,hpc_job,slurm_job_id and others]",
    ),
]
RetryLimit: TypeAlias = Annotated[
    int,
    typer.Option(
        "--retries", min=0, help="Retries after transient failures in a row, without a batch in between."
    ),
]


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of the query, by a signal or a failure."""

    #: at a signal; a query that has read everything closes them in any case
    closes_windows: bool
    retries: int


class PipelineOptions(NamedTuple):
    """The options of `run` and `backfill`."""

    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    topic: Topic = "gpu-telemetry"
    tables: Place = "penstock-tables"
    master: Master = "local[*]"
    shards: Shards = 2
    delay: Delay = 30.0
    ahead: Ahead = 300.0
    batch_rows: BatchRows = 2_000_000
    thresholds: ThresholdFile = None
    storage_option: StorageOptions = None
    retries: RetryLimit = 5
    spark_log: SparkLogFile = ""
    workload_labels: WorkloadLabels = None

    def job(self) -> Job:
        """The job that these options describe."""
        require_java()
        from penstock.telemetry.pipeline.jobs import Job

        place = self.tables if "://" in self.tables else str(Path(self.tables).absolute())
        return Job(
            self.bootstrap,
            self.topic,
            place,
            self._settings(),
            most_per_batch=self.batch_rows,
            storage_options=pairs(self.storage_option or (), "--storage-option"),
            security=java_settings(),
        )

    def _settings(self) -> Settings:
        from penstock.telemetry.pipeline.batches import Settings
        from penstock.telemetry.thresholds import load_thresholds
        from penstock.telemetry.workloads import WORKLOAD_LABELS, parse_order

        thresholds = load_thresholds(self.thresholds.read_text() if self.thresholds is not None else "")
        order = WORKLOAD_LABELS if self.workload_labels is None else parse_order(self.workload_labels)
        return Settings(thresholds, self.shards, int(self.delay * 1000), int(self.ahead * 1000), order)


@grouped
def run(
    *,
    pipeline: PipelineOptions,
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds between batches.")] = 5.0,
    compact_every: Annotated[int, typer.Option(min=0, help="Batches between compactions; 0 for none.")] = 360,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port for Prometheus metrics, on loopback.")
    ] = None,
    close_windows: Annotated[
        bool,
        typer.Option("--close-windows", help="Close all windows at the end; later samples of them are late."),
    ] = False,
    topic_wait: Annotated[
        float, typer.Option("--topic-wait", min=0.0, help="Seconds to wait for a topic that does not exist.")
    ] = 0.0,
) -> None:
    """Keep tables, rollups and alerts up to date, exactly once, until Ctrl-C."""
    timed = replace(pipeline.job(), trigger=f"{int(trigger * 1000)} milliseconds")
    job = replace(timed, topic_wait_s=topic_wait)
    ending = _Ending(close_windows, pipeline.retries)
    _execute(job, pipeline.master, compact_every, metrics_port, ending, _log(job, pipeline.spark_log))


@grouped
def backfill(*, pipeline: PipelineOptions) -> None:
    """Process everything in the topic now, close all windows, and end. Continues where `run` stopped."""
    job = replace(pipeline.job(), until_end=True)
    _execute(job, pipeline.master, 0, None, _Ending(False, pipeline.retries), _log(job, pipeline.spark_log))


def _log(job: Job, wanted: str) -> SparkLog:
    return SparkLog.beside(job.tables, wanted)


def _execute(
    job: Job, master: str, compact_every: int, metrics_port: int | None, ending: _Ending, spark_log: SparkLog
) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from penstock.cli.telemetry.progress import shown
    from penstock.telemetry.pipeline.jobs import Maintenance, SparkError, new_session, warm_up
    from penstock.telemetry.pipeline.progress import Progress
    from penstock.telemetry.pipeline.supervision import QueryFailed

    registry = CollectorRegistry()
    progress = Progress(registry)
    if metrics_port is not None:
        start_http_server(metrics_port, "127.0.0.1", registry)
    try:
        # A JVM whose Python is interrupted while it starts stays behind.
        _say("starting Spark")
        with stoppable() as stop_at_once, spark_log.taking_over():
            spark = new_session(master)
    except SparkError as error:
        raise spark_log.failure("Spark did not start", error) from error
    _say("Spark is up; starting Python workers and planning the query")
    warm_up(spark)
    maintenance = Maintenance(spark, job.tables, compact_every, 24, job.storage_options)
    try:
        # Spark's own handler of Ctrl-C calls the JVM in the middle of another call.
        with stoppable() as stop, shown(progress) as (show_batch, show):
            if stop_at_once.is_set():
                return
            _keep_running(spark, job, ending, stop, progress, _all(progress, maintenance, show_batch), show)
    except QueryFailed as error:
        raise spark_log.failure("the pipeline failed", error) from error
    finally:
        maintenance.close()
        with suppress(Exception):  # a JVM that has died cannot stop
            spark.stop()
    typer.echo(_summary(progress))


def _keep_running(
    spark: Any,
    job: Job,
    ending: _Ending,
    stop: Event,
    progress: Progress,
    report: Callable[[Any], None],
    show: Callable[[], None],
) -> None:
    """Run the query to its end, and start it again after a transient failure."""
    from penstock.telemetry.pipeline.jobs import start
    from penstock.telemetry.pipeline.publish import TopicsUnreachable
    from penstock.telemetry.pipeline.supervision import JvmEnded, QueryFailed, Retries, reason_of

    retries = Retries(ending.retries)
    while True:
        try:
            started = start(spark, job, report)
            _say("the query runs; waiting for its first batch")
            _run_query(started, ending, stop, progress, show)
            return
        except (QueryFailed, TopicsUnreachable) as error:
            cause = error if isinstance(error, JvmEnded) else error.__cause__ or error
            wait_s = retries.next_wait_s(cause, progress.batch_id)
            if wait_s is None:
                raise
            typer.echo(f"{reason_of(error)}; next try in {wait_s:g} s", err=True)
            if stop.wait(wait_s):
                return


def _run_query(
    started: Started, ending: _Ending, stop: Event, progress: Progress, show: Callable[[], None]
) -> None:
    has_ended = False
    while not (stop.is_set() or has_ended):
        has_ended = started.wait(_LOOK_S)
        progress.saw(started.progress())
        show()
    # A query that has ended has read all that it was to read.
    if has_ended or ending.closes_windows:
        started.close()
    # A batch that this interrupts is run again next time.
    started.query.stop()


def _say(step: str) -> None:
    """Print a step of the start, with the time since the command began."""
    typer.echo(f"{time.monotonic() - _BEGAN_S:.1f} s: {step}", err=True)


def _all(*listeners: Callable[[Any], None]) -> Callable[[Any], None]:
    def notify(report: Any) -> None:
        for listener in listeners:
            listener(report)

    return notify


def _summary(progress: Progress) -> str:
    parts = ", ".join(f"{number} {verdict.replace('_', '-')}" for verdict, number in progress.totals.items())
    return f"{progress.consumed} read: {parts}; {progress.opened} alerts opened"
