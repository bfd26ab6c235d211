"""`penstock telemetry run|backfill`: the pipeline, as a stream or until the topic's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from penstock.cli.interruption import stoppable
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, pairs
from penstock.cli.requirements import require_java

if TYPE_CHECKING:
    from penstock.telemetry.pipeline.batches import Settings
    from penstock.telemetry.pipeline.jobs import Job
    from penstock.telemetry.pipeline.progress import Progress

__all__ = ["backfill", "run"]

_LOOK_S: Final = 1

Topic: TypeAlias = Annotated[str, typer.Option("--topic", help="Of samples.")]
Place: TypeAlias = Annotated[
    str, typer.Option("--tables", metavar="DIR|URL", help="Where tables and checkpoints are.")
]
Master: TypeAlias = Annotated[
    str, typer.Option("--master", help="Spark's; empty for what spark-submit has set.")
]
ThresholdFile: TypeAlias = Annotated[
    Path | None, typer.Option("--thresholds", help="YAML that changes the detectors' defaults.")
]
Shards: TypeAlias = Annotated[
    int, typer.Option("--shards", min=1, help="Tasks of a batch; fixed once there is state.")
]
Delay: TypeAlias = Annotated[
    float, typer.Option("--delay", min=0.0, help="Seconds that windows stay open for late samples.")
]
BatchRows: TypeAlias = Annotated[
    int, typer.Option("--batch-rows", min=1, help="Most messages of a batch: bounds its memory.")
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Of the object store, as deltalake names it, such as AWS_REGION; may be given again.",
    ),
]
Ahead: TypeAlias = Annotated[
    float, typer.Option("--ahead", min=0.0, help="Seconds that samples may be ahead of our clock.")
]


def run(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Topic = "gpu.telemetry",
    tables: Place = "penstock-tables",
    master: Master = "local[*]",
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds between batches.")] = 5.0,
    shards: Shards = 2,
    delay: Delay = 30.0,
    ahead: Ahead = 300.0,
    batch_rows: BatchRows = 2_000_000,
    thresholds: ThresholdFile = None,
    compact_every: Annotated[int, typer.Option(min=0, help="Batches between compactions; 0 for none.")] = 360,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics here, on loopback.")
    ] = None,
    storage_option: StorageOptions = None,
) -> None:
    """Keep tables, rollups and alerts up to date, exactly once, until Ctrl-C."""
    settings = _settings(shards, delay, ahead, thresholds)
    job = _job(bootstrap, topic, tables, settings, batch_rows, storage_option)
    job = replace(job, trigger=f"{int(trigger * 1000)} milliseconds")
    _execute(job, master, compact_every, metrics_port)


def backfill(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Topic = "gpu.telemetry",
    tables: Place = "penstock-tables",
    master: Master = "local[*]",
    shards: Shards = 2,
    delay: Delay = 30.0,
    ahead: Ahead = 300.0,
    batch_rows: BatchRows = 2_000_000,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
) -> None:
    """The same for what is in the topic now, and end. What was begun goes on where it was."""
    settings = _settings(shards, delay, ahead, thresholds)
    job = _job(bootstrap, topic, tables, settings, batch_rows, storage_option)
    _execute(replace(job, until_end=True), master, 0, None)


def _settings(shards: int, delay: float, ahead: float, thresholds: Path | None) -> Settings:
    from penstock.telemetry.pipeline.batches import Settings
    from penstock.telemetry.thresholds import load_thresholds

    told = load_thresholds(thresholds.read_text() if thresholds is not None else "")
    return Settings(told, shards, int(delay * 1000), int(ahead * 1000))


def _job(
    bootstrap: str,
    topic: str,
    tables: str,
    settings: Settings,
    batch_rows: int,
    storage_option: list[str] | None,
) -> Job:
    require_java()
    from penstock.telemetry.pipeline.jobs import Job

    place = tables if "://" in tables else str(Path(tables).absolute())
    told = pairs(storage_option or (), "--storage-option")
    return Job(bootstrap, topic, place, settings, most_per_batch=batch_rows, storage_options=told)


def _execute(job: Job, master: str, compact_every: int, metrics_port: int | None) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from penstock.cli.telemetry_progress import shown
    from penstock.telemetry.pipeline.jobs import Maintenance, new_session, start
    from penstock.telemetry.pipeline.progress import Progress

    registry = CollectorRegistry()
    progress = Progress(registry)
    maintenance = Maintenance(job.tables, compact_every, 24, job.storage_options)
    if metrics_port is not None:
        start_http_server(metrics_port, "127.0.0.1", registry)
    with stoppable() as stop_at_once:
        # A JVM whose Python is interrupted while it starts stays behind.
        spark = new_session(master)
    try:
        # Spark's own way to take Ctrl-C asks the JVM in the middle of another question.
        with stoppable() as stop, shown(progress) as (show_batch, show):
            if stop_at_once.is_set():
                return
            query = start(spark, job, _all(progress, maintenance, show_batch))
            while not (stop.is_set() or query.awaitTermination(_LOOK_S)):
                progress.saw(query.lastProgress)
                show()
            # A batch that this interrupts is run again next time.
            query.stop()
    finally:
        maintenance.close()
        spark.stop()
    typer.echo(_summary(progress))


def _all(*listeners: Callable[[Any], None]) -> Callable[[Any], None]:
    def tell(report: Any) -> None:
        for listener in listeners:
            listener(report)

    return tell


def _summary(progress: Progress) -> str:
    parts = ", ".join(f"{number} {verdict.replace('_', '-')}" for verdict, number in progress.totals.items())
    return f"{progress.consumed} read: {parts}; {progress.opened} alerts opened"
