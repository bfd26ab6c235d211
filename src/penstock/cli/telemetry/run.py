"""`penstock telemetry run|backfill`: runs the pipeline, as a stream or until the end of the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from penstock.cli.client_config import java_settings
from penstock.cli.completion import topic_names
from penstock.cli.config_sources import storage_options
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.interruption import stoppable
from penstock.cli.option_groups import grouped
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from penstock.cli.requirements import require_extra, require_java
from penstock.cli.spark_jobs import make_session, say, supervise, with_ending
from penstock.cli.spark_log import SparkLog
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from penstock.jobs.session import SessionStart
    from penstock.telemetry.expiry.job import SampleExpiry
    from penstock.telemetry.pipeline.jobs import Job, Started
    from penstock.telemetry.pipeline.progress import Progress
    from penstock.telemetry.thresholds import Thresholds

__all__ = ["backfill", "run"]

_LOOK_S: Final = 1
_COMPACT_EVERY: Final = 360

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
KeepSamples: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--keep-samples",
        metavar="DURATION",
        help="Remove days of samples that are older, such as 30d, once their rollups are proven complete; "
        "at least 2d. [default: keep all]",
    ),
]


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of the query, by a signal or a failure."""

    #: at a signal; a query that has read everything closes them in any case
    closes_windows: bool
    retries: int


class _Parsed(NamedTuple):
    thresholds: Thresholds
    workload_labels: tuple[str, ...]
    storage_options: dict[str, str]
    #: TLS and SASL, by the names of Kafka's Java clients
    security: Mapping[str, str]
    keep_samples_ms: int | None


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
    keep_samples: KeepSamples = None

    @property
    def place(self) -> str:
        return self.tables if "://" in self.tables else str(Path(self.tables).absolute())

    def parsed(self) -> _Parsed:
        """The values of options that may be wrong; imports neither Spark nor Arrow."""
        from penstock.telemetry.thresholds import load_thresholds
        from penstock.telemetry.workloads import WORKLOAD_LABELS, parse_order

        return _Parsed(
            load_thresholds(self.thresholds.read_text() if self.thresholds is not None else ""),
            WORKLOAD_LABELS if self.workload_labels is None else parse_order(self.workload_labels),
            storage_options(self.storage_option or ()),
            java_settings(),
            self._keep_samples_ms(),
        )

    def _keep_samples_ms(self) -> int | None:
        """How long samples are kept; None for ever."""
        if self.keep_samples is None:
            return None
        from penstock.cli.archives import duration_ms
        from penstock.telemetry.expiry import KEEP_MIN_MS

        keep_ms = duration_ms("--keep-samples", self.keep_samples)
        if keep_ms < KEEP_MIN_MS:
            misused(f"--keep-samples {self.keep_samples}: queries need samples of two days; take 2d or more")
        return keep_ms

    def job(self, parsed: _Parsed) -> Job:
        """The job that these options describe."""
        from penstock.telemetry.pipeline.batches import Settings
        from penstock.telemetry.pipeline.jobs import Job

        delay_ms, ahead_ms = int(self.delay * 1000), int(self.ahead * 1000)
        return Job(
            self.bootstrap,
            self.topic,
            self.place,
            Settings(parsed.thresholds, self.shards, delay_ms, ahead_ms, parsed.workload_labels),
            most_per_batch=self.batch_rows,
            storage_options=parsed.storage_options,
            security=parsed.security,
            keep_samples_ms=parsed.keep_samples_ms,
        )


@examples("penstock telemetry run")
@grouped
def run(
    *,
    pipeline: PipelineOptions,
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds between batches.")] = 5.0,
    compact_every: Annotated[
        int, typer.Option(min=0, help="Batches between compactions; 0 for none.")
    ] = _COMPACT_EVERY,
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
    with _started(pipeline) as (job, start, log):
        timed = replace(job, trigger=f"{int(trigger * 1000)} milliseconds", topic_wait_s=topic_wait)
        ending = _Ending(close_windows, pipeline.retries)
        _execute(timed, start, compact_every, metrics_port, ending, log)


@examples("penstock telemetry backfill")
@grouped
def backfill(*, pipeline: PipelineOptions) -> None:
    """Process everything in the topic now, close all windows, and end. Continues where `run` stopped."""
    with _started(pipeline) as (job, start, log):
        ending = _Ending(False, pipeline.retries)
        _execute(replace(job, until_end=True), start, _COMPACT_EVERY, None, ending, log)


@contextmanager
def _started(options: PipelineOptions) -> Iterator[tuple[Job, SessionStart, SparkLog]]:
    """Check the options, and import the pipeline."""
    require_java()
    for module in ("pyspark", "deltalake"):
        require_extra(module, "spark,telemetry")
    from penstock.jobs.session import SessionStart
    from penstock.telemetry.pipeline.names import WORKER_DAEMON

    parsed = options.parsed()
    log = SparkLog.beside(options.place, options.spark_log)
    start = SessionStart(options.master, daemon=WORKER_DAEMON)
    has_stopped = False
    try:
        job = options.job(parsed)
        say("the pipeline is imported; starting the JVM of Spark")
        yield job, start, log
        has_stopped = True
    finally:
        start.end(in_order=has_stopped)


def _execute(
    job: Job,
    start: SessionStart,
    compact_every: int,
    metrics_port: int | None,
    ending: _Ending,
    spark_log: SparkLog,
) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from penstock.cli.telemetry.progress import shown
    from penstock.jobs.maintenance import Maintenance
    from penstock.jobs.session import warm_up
    from penstock.jobs.supervision import JvmEnded, QueryFailed
    from penstock.telemetry.pipeline.progress import Progress
    from penstock.telemetry.pipeline.tables import TABLES, Tables

    registry = CollectorRegistry()
    progress = Progress(registry)
    with stoppable() as stop_at_once:
        spark = _session(start, spark_log)
    say("Spark is up; starting Python workers and planning the query")
    if metrics_port is not None:
        start_http_server(metrics_port, "127.0.0.1", registry)
    warm_up(spark)
    tables = Tables(job.tables, job.storage_options)
    maintenance = Maintenance(spark, tables, list(TABLES), compact_every, 24)
    listeners: list[Callable[[Any], None]] = [progress, maintenance]
    expiry = _expiry(spark, job, registry)
    if expiry is not None:
        listeners.append(expiry)
    try:
        # A session has a handler of Ctrl-C of its own, which calls the JVM in the middle of another call.
        with stoppable() as stop, shown(progress) as (show_batch, show):
            if not stop_at_once.is_set():
                report = _all(*listeners, show_batch)
                _keep_running(spark, job, ending, stop, progress, report, show, spark_log.mark)
    except JvmEnded as error:
        raise spark_log.failure("the pipeline failed", with_ending(error, start)) from error
    except QueryFailed as error:
        raise spark_log.failure("the pipeline failed", error) from error
    finally:
        maintenance.close()
        if expiry is not None:
            expiry.close()
        with suppress(Exception):  # a JVM that has died cannot stop
            spark.stop()
    typer.echo(_summary(progress))


def _expiry(spark: Any, job: Job, registry: CollectorRegistry) -> SampleExpiry | None:
    if job.keep_samples_ms is None:
        return None
    from penstock.telemetry.expiry.job import SampleExpiry, prover

    prove = prover(spark, job.tables, job.storage_options)
    return SampleExpiry(job.tables, job.keep_samples_ms, prove, registry, job.storage_options, say=say)


def _session(start: SessionStart, spark_log: SparkLog) -> Any:
    from penstock.telemetry.pipeline.worker_daemon import preload_planning

    return make_session(start, preload_planning, spark_log)


def _keep_running(
    spark: Any,
    job: Job,
    ending: _Ending,
    stop: Event,
    progress: Progress,
    report: Callable[[Any], None],
    show: Callable[[], None],
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Run the query to its end, and start it again after a transient failure.

    Calls `begin` before each try.
    """
    from penstock.jobs.supervision import Retries
    from penstock.telemetry.pipeline.jobs import start

    def attempt(look: Callable[[], None]) -> None:
        started = start(spark, job, report)
        say("the query runs; waiting for its first batch")
        _run_query(started, ending, stop, progress, look)

    supervise(
        spark,
        attempt,
        Retries(ending.retries),
        stop,
        lambda: progress.batch_id,
        show,
        ends_at_stop=not ending.closes_windows,
        begin=begin,
    )


def _run_query(
    started: Started, ending: _Ending, stop: Event, progress: Progress, look: Callable[[], None]
) -> None:
    from penstock.jobs.supervision import QueryFailed

    def may_end() -> bool:
        # Spark plans a batch that has failed again; windows cannot be closed before it is done.
        return stop.is_set() and not (ending.closes_windows and started.batches.must_repeat())

    has_ended = False
    try:
        while not (has_ended or may_end()):
            has_ended = started.wait(_LOOK_S)
            progress.saw(started.progress())
            look()
        # A query that has ended has read all that it was to read.
        if has_ended or ending.closes_windows:
            started.close()
    except PenstockError:
        # Windows may have failed to close while the query runs, and the next try needs its name.
        with suppress(QueryFailed):
            started.stop()
        raise
    started.stop()


def _all(*listeners: Callable[[Any], None]) -> Callable[[Any], None]:
    def notify(report: Any) -> None:
        for listener in listeners:
            listener(report)

    return notify


def _summary(progress: Progress) -> str:
    parts = ", ".join(f"{number} {verdict.replace('_', '-')}" for verdict, number in progress.totals.items())
    return f"{progress.consumed} read: {parts}; {progress.opened} alerts opened"
