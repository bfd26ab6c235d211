"""`penstock sql`."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.frames.sql import Result

#: rows of a table on a terminal; the widths of its columns take all of them
_SHOWN_MAX = 10_000


@examples(
    "penstock sql 'select key, count(*) from orders group by 1'",
    "penstock sql 'select * from orders where timestamp > now() - interval 1 hour limit 10'",
    "penstock sql \"select value->>'$.country' c, count(*) from orders group by 1\" --json",
)
@grouped
def sql(
    query: Annotated[str, typer.Argument(help="SQL of DuckDB; topics are tables.")],
    *,
    binary: Annotated[
        bool, typer.Option("--binary", help="Keep keys and values as bytes, instead of text.")
    ] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also read messages of open and aborted transactions.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="URL", help="Schema registry of the values: columns, not text."),
    ] = None,
    registry_config: Annotated[
        Path | None,
        typer.Option("--registry-config", metavar="FILE", help="Credentials and TLS of the schema registry."),
    ] = None,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Query topics with SQL, through DuckDB.

    Columns are key, value, topic, partition, offset, timestamp, timestampType and headers. Brokers send only
    the partitions, offsets and times that WHERE leaves.
    """
    from penstock.cli.client_config import java_settings
    from penstock.cli.registry_settings import registry_at
    from penstock.cli.requirements import require_extra

    require_extra("duckdb", "frames")
    require_extra("pyarrow", "frames")
    from penstock.frames.opening import endpoint_of
    from penstock.frames.sql import run_query

    endpoint = endpoint_of(connection.bootstrap, java_settings(), connection.timeout)
    result = run_query(
        query,
        endpoint,
        text=not binary,
        committed=not uncommitted,
        registry=registry_at(registry, registry_config),
    )
    if result is None:
        return
    if as_json:
        _print_lines(result)
    else:
        _print_table(result)


def _print_lines(result: Result) -> None:
    from penstock.cli.output import print_json_line

    for row in result:
        print_json_line({name: _plain(value) for name, value in row.items()})


def _print_table(result: Result) -> None:
    from penstock.cli.output import print_table

    rows = iter(result)
    shown = [[_cell(value) for value in row.values()] for row in islice(rows, _SHOWN_MAX)]
    print_table(result.columns, shown)
    if next(rows, None) is not None:
        print(f"only the first {_SHOWN_MAX} rows are shown: add LIMIT, or use --json", file=sys.stderr)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_plain(value))


def _plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes in base64."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
