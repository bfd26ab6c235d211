"""`penstock telemetry serve|report`: what the pipeline's tables say, over HTTP or as files."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.options import pairs
from penstock.cli.requirements import require_extra
from penstock.cli.telemetry_run import StorageOptions, ThresholdFile

if TYPE_CHECKING:
    from penstock.telemetry.queries.reader import TableReader
    from penstock.telemetry.thresholds import Thresholds

__all__ = ["report", "serve"]

Place: TypeAlias = Annotated[
    str, typer.Option("--tables", metavar="DIR|URL", help="Where `penstock telemetry run` keeps its tables.")
]
_ROWS_SHOWN = 10


def serve(
    tables: Place = "penstock-tables",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8080,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
) -> None:
    """Answer questions about GPUs and the fleet over HTTP, until Ctrl-C."""
    require_extra("fastapi")
    reader, told = _reader(tables, storage_option), _thresholds(thresholds)

    from penstock.telemetry.api import build_app
    from penstock.telemetry.api import serve as answer

    app = build_app(reader, told)
    with _listening(host, port) as listening:
        own = f"[{host}]" if ":" in host else host
        url = f"http://{own}:{listening.getsockname()[1]}"
        typer.echo(f"ready {url}/api/v1/gpus (documentation: {url}/docs)")
        if not reader.exists():
            typer.echo(f"there are no tables in {tables} yet; /readyz says when there are", err=True)
        answer(app, listening)


def report(
    tables: Place = "penstock-tables",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")] = Path(
        "penstock-report"
    ),
    hours: Annotated[
        float, typer.Option("--hours", min=0.01, help="How far back from the newest sample.")
    ] = 24.0,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
) -> None:
    """Write tables (CSV, Markdown) and plots (PNG) of the fleet, and show the tables' first rows."""
    require_extra("matplotlib")
    reader, told = _reader(tables, storage_option), _thresholds(thresholds)
    if out.exists() and not out.is_dir():
        misused(f"--out {out} is a file; name a folder")

    from penstock.cli.output import print_table
    from penstock.telemetry.report import cells, write_report

    made = write_report(reader, out, hours=hours, thresholds=told)
    for section in made.sections:
        if section.rows:
            typer.echo(f"{section.title}, {min(_ROWS_SHOWN, len(section.rows))} of {len(section.rows)}:")
            columns, *rows = cells(section, _ROWS_SHOWN)
            print_table(columns, rows)
    typer.echo(made.summary)
    if made.files:
        typer.echo(f"{len(made.files)} files in {out}; begin with {made.files[0]}")


def _reader(tables: str, storage_option: list[str] | None) -> TableReader:
    from penstock.telemetry.queries.reader import TableReader

    if "://" not in tables and Path(tables).exists() and not Path(tables).is_dir():
        misused(f"--tables {tables} is a file; name the folder that `penstock telemetry run` writes to")
    try:
        return TableReader(tables, storage_options=pairs(storage_option or (), "--storage-option"))
    except (ValueError, OSError) as error:
        raise Failure(f"--tables {tables}: {error}") from error


def _thresholds(file: Path | None) -> Thresholds:
    from penstock.telemetry.thresholds import load_thresholds

    return load_thresholds(file.read_text() if file is not None else "")


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or error
        raise Failure(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port"
        ) from error
