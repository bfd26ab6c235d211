"""`penstock backup run|list|verify|prune`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.archives import Address, StoreConfig, duration_ms, in_store, split_moment
from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson
from penstock.cli.output import print_json_line, print_rows
from penstock.cli.requirements import require_extra

if TYPE_CHECKING:
    from penstock.archive.cuts import Cut
    from penstock.archive.verifying import PartitionVerification
    from penstock.ports import ObjectStore

app = typer.Typer(help="Back up any Kafka cluster to an archive, and look after it.", no_args_is_help=True)

Keep = Annotated[str, typer.Option("--keep", metavar="DURATION", help="Remove cuts older than this: 30d.")]


@app.command()
@examples("penstock backup run --to s3://bucket/kafka --every 60s", "penstock backup run --to ./archive")
@grouped
def run(
    to: Annotated[
        str, typer.Option("--to", metavar="ARCHIVE", help="A folder, or a URL: s3://bucket/prefix.")
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only these topics; 'orders-*' is a pattern."),
    ] = None,
    every: Annotated[
        str,
        typer.Option("--every", metavar="DURATION", help="Take a cut at this interval, until Ctrl-C: 60s."),
    ] = "",
    keep: Keep = "",
    verify_every: Annotated[
        str,
        typer.Option(
            "--verify-every", metavar="DURATION", help="With --every: read and verify the newest cut: 1d."
        ),
    ] = "",
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics", metavar="[HOST:]PORT", help="With --every: serve metrics for Prometheus here."
        ),
    ] = "",
    store_config: StoreConfig = None,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Copy all topics and the offsets of all groups, and write a cut: a moment that can be restored.

    Only what is new since the last cut is copied.
    """
    # Longer than other functions because its parameters are the options of the command.
    require_extra("obstore", "archive")
    if not every and (verify_every or metrics):
        misused("--verify-every and --metrics are for a backup that runs: give --every, too")
    intervals = (
        duration_ms("--every", every) if every else None,
        duration_ms("--keep", keep) if keep else None,
        duration_ms("--verify-every", verify_every) if verify_every else None,
    )
    listener = _address_of(metrics) if metrics else None

    async def work(store: ObjectStore) -> None:
        from penstock.archive.objects import open_archive
        from penstock.backup.running import BackupMetrics, RunningBackup, Schedule, serve_metrics
        from penstock.backup.source import Cluster
        from penstock.backup.taking import Backup
        from penstock.broker.base.system_ports import SystemClock, SystemRng
        from penstock.cli.client_config import client_security

        rng, clock = SystemRng(), SystemClock()
        root = await open_archive(store, rng, clock.now_ms())
        cluster = Cluster(connection.bootstrap, rng, client_security())
        every_ms, keep_ms, verify_ms = intervals
        shown = BackupMetrics(
            clock.now_ms(), Schedule(every_ms=every_ms, keep_ms=keep_ms, verify_every_ms=verify_ms)
        )
        server = None
        try:
            if listener is not None:
                server, port = await serve_metrics(shown, clock, *listener)
                _say(f"metrics at http://{listener[0]}:{port}/metrics")
            backup = Backup(cluster, store, root.id, rng, clock, topics or ())
            report = partial(_report, as_json)
            await RunningBackup(backup, store, clock, shown, report, _say).run()
        finally:
            if server is not None:
                await server.stop()
            cluster.close()

    in_store(to, store_config, work, create=True)


def _say(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr, flush=True)


def _address_of(text: str) -> tuple[str, int]:
    """The host, loopback by default, and the port of `--metrics`."""
    from penstock.model.config.monitoring_keys import metrics_address

    try:
        found = metrics_address(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError:
        found = None
    if found is None or found.tls or found.relative:
        misused(f"--metrics {text!r} is neither a port nor HOST:PORT")
    return found.host, found.port


def _report(as_json: bool, name: str, cut: Cut, seconds: float) -> None:
    row = {**_row(name, cut), "seconds": round(seconds, 3)}
    if as_json:
        print_json_line(row)
    else:
        print(
            f"cut {row['time']}: {row['topics']} topics, {row['partitions']} partitions, "
            f"{row['groups']} groups, {seconds:.1f} s"
        )
    sys.stdout.flush()


def _row(name: str, cut: Cut) -> dict[str, Any]:
    partitions = [each for topic in cut.topics for each in topic.partitions]
    return {
        "time": _time(cut.time_ms),
        "topics": len(cut.topics),
        "partitions": len(partitions),
        "records": sum(each.end_offset - each.log_start_offset for each in partitions),
        "groups": len(cut.groups),
        "cluster": cut.cluster_id,
        "name": name,
    }


def _time(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


@app.command("list")
@examples("penstock backup list ./archive")
def list_(archive: Address, store_config: StoreConfig = None, as_json: AsJson = False) -> None:
    """List the cuts of an archive, oldest first: the moments that can be restored."""
    require_extra("obstore", "archive")

    async def work(store: ObjectStore) -> list[dict[str, Any]]:
        from penstock.archive.cuts import Cut
        from penstock.archive.objects import read_document, read_root
        from penstock.archive.sweeping import list_cuts

        await read_root(store)
        return [_row(name, (await read_document(store, name, Cut))[0]) for name in await list_cuts(store)]

    rows = in_store(archive, store_config, work)
    print_rows(
        rows,
        as_json=as_json,
        columns=["time", "topics", "partitions", "records", "groups", "cluster"],
        empty="the archive has no cuts",
    )


@app.command()
@examples(
    "penstock backup verify ./archive@2026-11-17T12:00", "penstock backup verify s3://bucket/tier --tiered"
)
def verify(
    archive: Address,
    tiered: Annotated[
        bool,
        typer.Option("--tiered", help="Verify the segments of tiered storage instead, which are in no cut."),
    ] = False,
    store_config: StoreConfig = None,
    as_json: AsJson = False,
) -> None:
    """Read every object of a cut, and prove that nothing is damaged or missing.

    ARCHIVE@TIME verifies the newest cut at or before that time; without a time, the newest one.
    """
    require_extra("obstore", "archive")
    address, moment_ms = split_moment(archive)
    if tiered and moment_ms is not None:
        misused("--tiered verifies what tiered storage has now: name the archive without a time")

    async def work(store: ObjectStore) -> list[dict[str, Any]]:
        from penstock.archive.objects import read_root
        from penstock.archive.sweeping import find_cut
        from penstock.archive.verifying import verify_cut, verify_tiered

        await read_root(store)
        if tiered:
            return [_verification(each) for each in await verify_tiered(store)]
        return [
            _verification(each) for each in await verify_cut(store, (await find_cut(store, moment_ms))[1])
        ]

    rows = in_store(address, store_config, work)
    columns = ["topic", "partition", "ok", "segments", "bytes", "problem"]
    empty = "tiered storage has no segments" if tiered else "the cut has no topics"
    print_rows(rows, as_json=as_json, columns=columns, empty=empty)
    damaged = sum(row["ok"] == "no" for row in rows)
    if damaged:
        what = "cannot be read from tiered storage" if tiered else "cannot be restored from this cut"
        raise Failure(f"{damaged} of {len(rows)} partitions {what}")


def _verification(found: PartitionVerification) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": found.topic, "partition": found.partition}
    if found.verified is None:
        return row | {"ok": "no", "problem": found.problem}
    row |= {"ok": "yes", "problem": ""}
    return row | {"segments": found.verified.segments, "bytes": found.verified.object_bytes}


@app.command()
@examples("penstock backup prune ./archive --keep 30d")
def prune(archive: Address, keep: Keep, store_config: StoreConfig = None, as_json: AsJson = False) -> None:
    """Remove old cuts, but never the newest one, and objects that nothing has named for a day."""
    require_extra("obstore", "archive")
    keep_ms = duration_ms("--keep", keep)

    async def work(store: ObjectStore) -> dict[str, int]:
        from penstock.archive.objects import read_root
        from penstock.archive.sweeping import collect, earlier_now, prune_cuts
        from penstock.broker.base.system_ports import SystemClock, SystemRng

        await read_root(store)
        now_ms = SystemClock().now_ms()
        removed = await prune_cuts(store, await earlier_now(store, SystemRng(), now_ms) - keep_ms)
        collected = await collect(store, SystemRng(), now_ms)
        return {"cuts": len(removed), "objects": collected.deleted, "waiting": collected.waiting}

    row = in_store(archive, store_config, work)
    if as_json:
        print_json_line(row)
    else:
        print(
            f"removed {row['cuts']} cuts and {row['objects']} objects; {row['waiting']} objects without "
            f"a name wait for their grace period of a day"
        )
