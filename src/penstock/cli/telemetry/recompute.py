"""`penstock telemetry recompute`: rollups and views by plain SQL, and a comparison with the tables."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.config_sources import storage_options
from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.requirements import require_extra, require_java
from penstock.cli.spark_log import SparkLog
from penstock.cli.telemetry.run import Master, StorageOptions, ThresholdFile
from penstock.cli.telemetry.serve import Place

__all__ = ["recompute"]

_GROUPS = ("gpu_id", "hostname", "model", "workload", "job", "pod", "namespace")


@examples("penstock telemetry recompute")
def recompute(
    tables: Place = "penstock-tables",
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR|URL", help="Where to write rollups and views.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="The column by which views are grouped: gpu_id, hostname, workload and so on.")
    ] = "hostname",
    master: Master = "local[*]",
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
) -> None:
    """Compute rollups and views again from samples, and compare them with the pipeline's tables."""
    # Longer than other functions because its parameters are the options of the command.
    require_java()
    for module in ("pyspark", "deltalake"):
        require_extra(module, "spark,telemetry")
    if by not in _GROUPS:
        misused(f"--by {by}: choose one of {', '.join(_GROUPS)}")
    place = tables if "://" in tables else str(Path(tables).absolute())
    if "://" not in place and not (Path(place) / "samples" / "_delta_log").is_dir():
        raise Failure(
            f"there is no table of samples in {tables}: name the folder of `penstock telemetry run`"
        )

    from penstock.jobs.query import LOST_JVM, SparkError, explained
    from penstock.jobs.session import new_session
    from penstock.jobs.storage import Store
    from penstock.jobs.supervision import QueryFailed
    from penstock.telemetry.expiry.removal import expired_before
    from penstock.telemetry.pipeline.tables import Tables
    from penstock.telemetry.recompute import recompute as run
    from penstock.telemetry.thresholds import load_thresholds

    limits = load_thresholds(thresholds.read_text() if thresholds is not None else "")
    options = storage_options(storage_option or ())
    log = SparkLog.beside(place, "")
    try:
        with log.taking_over():
            spark = new_session(master, "penstock-recompute")
    except (SparkError, *LOST_JVM) as error:
        raise log.failure("Spark did not start", error) from error
    try:
        idle_max = limits.idle_occupied.gpu_util_max_percent
        with explained():
            kept_since = expired_before(Store(place, options))
            found = run(spark, Tables(place, options), out, by, idle_max, kept_since)
    except QueryFailed as error:
        raise log.failure("the tables were not recomputed", error) from error
    finally:
        with suppress(Exception):  # a JVM that has died cannot stop
            spark.stop()
    for each in found:
        typer.echo(f"{each.table}: {each.windows:,} windows compared, {each.differences:,} differ")
        for example in each.examples:
            typer.echo(f"  {example}")
    if kept_since is not None:
        typer.echo(f"samples before {kept_since} have expired: windows before that day were not compared")
    different = [each.table for each in found if each.differences]
    if different:
        raise Failure(f"{', '.join(different)} differ from the samples")
