"""`penstock table create|run|list|describe|delete`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from uuid import uuid4

import typer

from penstock.cli.completion import topic_names
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.tables.catalog import Catalog
    from penstock.tables.definition import TableDefinition

app = typer.Typer(help="Keep Delta tables of topics, by a job of Spark.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="The name of the table.")]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of the object store, by deltalake's name, such as AWS_REGION; repeatable.",
    ),
]


@app.command()
@examples(
    "penstock table create orders --topic orders --to s3://lake/orders",
    "penstock table create people --topic people --to /data/people --schema registry "
    "--registry http://127.0.0.1:8081",
)
@grouped
def create(
    name: Name,
    topic: Annotated[str, typer.Option("--topic", help="The topic.", autocompletion=topic_names)],
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|URL", help="Folder of the table, such as s3://bucket/orders.")
    ],
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="infer|registry|json:FILE",
            help="The columns: of JSON values, of a registry's schemas, or of a JSON Schema.",
        ),
    ] = "infer",
    format: Annotated[str, typer.Option("--format", help="The format of the table.")] = "delta",
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            help="append: a row for each message. upsert: the latest one of each key.",
            show_default="upsert for compacted topics, else append",
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", metavar="text|binary|registry", help="What keys are.")
    ] = "text",
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="Address of the schema registry.")
    ] = None,
    buckets: Annotated[
        int, typer.Option("--buckets", help="Parts of an upsert table; a batch writes those of its keys.")
    ] = 16,
    storage_option: StorageOptions = None,
    *,
    connection: Connection,
) -> None:
    """Define a table of a topic, and make it. `penstock table run` fills it."""
    # Longer than other functions because of its options.
    from penstock.cli.failure import misused
    from penstock.cli.tables.running import require_decoders

    catalog = _catalog(connection)
    from penstock.tables.definition import TableDefinition, parse_schema
    from penstock.tables.opening import make

    for given, known, option in (
        (format, ("delta",), "--format"),
        (key, ("text", "binary", "registry"), "--key"),
        (mode, ("", "append", "upsert"), "--mode"),
    ):
        if given not in known:
            misused(f"{option} {given!r} is not {' or '.join(filter(None, known))}")
    kind, path = parse_schema(schema)
    policy = catalog.topic_configs(topic).get("cleanup.policy") or ""
    chosen: Any = mode or ("upsert" if "compact" in policy else "append")
    parts: dict[str, Any] = {"schema": kind, "key": key, "mode": chosen}
    definition = TableDefinition(
        name=name,
        id=uuid4().hex,
        topic=topic,
        to=_place(to),
        json_schema=None if path is None else _text(path),
        registry=registry,
        buckets=buckets,
        **parts,
    ).check()
    require_decoders(definition)
    catalog.add(definition, lambda: make(definition, _storage_options(storage_option)))
    print(f"{name}: {chosen} table of {topic} at {definition.to}; `penstock table run {name}` fills it")


@app.command()
@examples("penstock table run orders", "penstock table run orders --until-end")
@grouped
def run(
    name: Name,
    *,
    master: Annotated[
        str, typer.Option("--master", help="Spark master; empty for the one of spark-submit.")
    ] = "local[*]",
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds between batches.")] = 10.0,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Read what is in the topic now, and end.")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on without messages that retention removed unread.")
    ] = False,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Most messages of a batch; limits its memory.")
    ] = 500_000,
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Tasks of a batch of an upsert table.")] = 2,
    compact_every: Annotated[int, typer.Option(min=0, help="Batches between compactions; 0 for none.")] = 360,
    retention_hours: Annotated[
        int, typer.Option("--retention-hours", min=1, help="How long vacuum keeps files for readers.")
    ] = 24,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port for Prometheus metrics, on loopback.")
    ] = None,
    registry_config: Annotated[
        Path | None,
        typer.Option("--registry-config", metavar="FILE", help="Credentials and TLS of the schema registry."),
    ] = None,
    retries: Annotated[
        int, typer.Option("--retries", min=0, help="Retries after transient failures in a row.")
    ] = 5,
    spark_log: Annotated[
        str,
        typer.Option(
            "--spark-log",
            metavar="FILE",
            help="File for the output of Spark's JVM; - for standard error.",
            show_default="spark.log beside the state",
        ),
    ] = "",
    storage_option: StorageOptions = None,
    connection: Connection,
) -> None:
    """Keep a table up to date, exactly once, until Ctrl-C. Continues where the last run stopped."""
    # Longer than other functions because of its options.
    from penstock.cli.client_config import java_settings
    from penstock.cli.registry_settings import registry_at
    from penstock.cli.spark_log import SparkLog
    from penstock.cli.tables.running import RunSettings, require_decoders, run_table

    definition = _catalog(connection).find(name)
    require_decoders(definition)
    from penstock.tables.job import TableJob

    job = TableJob(
        definition,
        connection.bootstrap,
        trigger=f"{int(trigger * 1000)} milliseconds",
        most_per_batch=batch_rows,
        tasks=tasks,
        until_end=until_end,
        skip_lost=skip_lost,
        storage_options=_storage_options(storage_option),
        security=java_settings(),
        registry=registry_at(definition.registry, registry_config),
    )
    log = SparkLog.beside(f"{definition.root}/{definition.state}", spark_log)
    run_table(job, RunSettings(master, compact_every, retention_hours, metrics_port, retries), log)


@app.command("list")
@examples("penstock table list --json")
@grouped
def list_command(*, connection: Connection, as_json: AsJson = False) -> None:
    """List the tables of the cluster's topics."""
    from penstock.cli.output import print_rows

    stored = _catalog(connection).stored()
    for bad, reason in stored.unusable.items():
        typer.echo(f"the stored definition of table {bad} cannot be used: {reason}", err=True)
    rows = [_row(each) for each in stored.definitions.values()]
    columns = ("table", "topic", "mode", "schema", "to")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no tables")


@app.command()
@examples("penstock table describe orders")
@grouped
def describe(
    name: Name, storage_option: StorageOptions = None, *, connection: Connection, as_json: AsJson = False
) -> None:
    """Show a table: its definition, rows, dead letters, freshness and columns."""
    from penstock.cli.output import print_json, print_rows

    definition = _catalog(connection).find(name)
    from penstock.tables.opening import describe as state_of

    state = state_of(definition, _storage_options(storage_option))
    document: dict[str, Any] = _row(definition) | {"key": definition.key, "registry": definition.registry}
    if definition.mode == "upsert":
        document["buckets"] = definition.buckets
    if as_json:
        print_json(document | {"state": None if state is None else state._asdict()})
        return
    found = {} if state is None else {k: v for k, v in state._asdict().items() if k != "columns"}
    if found.get("freshness_s") is not None:
        found["freshness_s"] = f"{found['freshness_s']:.1f}"
    for title, value in {**document, **found}.items():
        if value is not None:
            print(f"{title}: {value}")
    if state is None:
        print("there is no table at this place any more")
        return
    columns = [{"column": column, "type": kind} for column, kind in state.columns.items()]
    print_rows(columns, as_json=False, columns=("column", "type"), empty="no values have brought columns yet")


@app.command()
@examples("penstock table delete orders", "penstock table delete orders --data --yes")
@grouped
def delete(
    name: Name,
    data: Annotated[
        bool, typer.Option("--data", help="Delete the files of the table, too, and those of its state.")
    ] = False,
    storage_option: StorageOptions = None,
    yes: Yes = False,
    *,
    connection: Connection,
) -> None:
    """Forget a table. Its files stay unless --data is given; stop its job first."""
    catalog = _catalog(connection)
    if not data and name in catalog.stored().unusable:
        confirm(f"Forget the table {name}, whose stored definition cannot be used", connection.bootstrap, yes)
        catalog.remove(name)
        print(f"{name}: forgotten")
        return
    definition = catalog.find(name)
    what = (
        f"Delete the table {name} with the files in {definition.to}" if data else f"Forget the table {name}"
    )
    confirm(what, connection.bootstrap, yes)
    if data:
        from penstock.tables.opening import delete_data

        delete_data(definition, _storage_options(storage_option))
    catalog.remove(name)
    print(f"{name}: deleted" if data else f"{name}: forgotten; its files are in {definition.to}")


def _catalog(connection: Connection) -> Catalog:
    from penstock.cli.client_config import librdkafka_settings
    from penstock.cli.tables.running import require_tables

    require_tables()
    from penstock.tables.catalog import Catalog

    return Catalog(connection.bootstrap, librdkafka_settings(), connection.timeout)


def _row(definition: TableDefinition) -> dict[str, Any]:
    return {
        "table": definition.name,
        "topic": definition.topic,
        "mode": definition.mode,
        "schema": definition.schema,
        "to": definition.to,
    }


def _place(to: str) -> str:
    return to.rstrip("/") if "://" in to else os.path.abspath(to)


def _text(path: str) -> str:
    from penstock.cli.failure import misused

    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        misused(f"cannot read --schema json:{path}: {error}")


def _storage_options(texts: list[str] | None) -> dict[str, str] | None:
    from penstock.cli.config_sources import storage_options

    return storage_options(texts or ()) or None
