"""`penstock telemetry serve|report|now`: the pipeline's tables over HTTP, as files, or as a table."""

from __future__ import annotations

import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.config_sources import storage_options
from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson
from penstock.cli.private_files import is_open_to_others
from penstock.cli.requirements import require_extra
from penstock.cli.telemetry.run import StorageOptions, ThresholdFile
from penstock.cli.web_listening import check_exposure, listening_on

if TYPE_CHECKING:
    from penstock.telemetry.queries.idleness import Prices
    from penstock.telemetry.queries.now import NowGpu
    from penstock.telemetry.queries.reader import TableReader
    from penstock.telemetry.thresholds import Thresholds

__all__ = ["now", "report", "serve"]

Place: TypeAlias = Annotated[
    str,
    typer.Option(
        "--tables", metavar="DIR|URL", help="Folder or URL of the tables of `penstock telemetry run`."
    ),
]
PricePerGpuHour: TypeAlias = Annotated[
    float | None,
    typer.Option("--price-per-gpu-hour", min=0.0, help="Price of an hour of a GPU, for the cost of waste."),
]
PricePerKwh: TypeAlias = Annotated[
    float | None,
    typer.Option("--price-per-kwh", min=0.0, help="Price of a kilowatt-hour, for the cost of waste."),
]
_ROWS_SHOWN = 10
#: rows of `now` on a terminal; JSON has all of them
_NOW_SHOWN = 40


@examples("penstock telemetry serve")
def serve(
    tables: Place = "penstock-tables",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
    ] = 8080,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="PEM file with key and certificates, for TLS."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File with the token that requests need."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that clients use for it; repeatable."),
    ] = None,
    allow_insecure: Annotated[
        bool,
        typer.Option("--allow-insecure", help="Serve other machines without TLS or without a token."),
    ] = False,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
    price_per_gpu_hour: PricePerGpuHour = None,
    price_per_kwh: PricePerKwh = None,
) -> None:
    """Serve a REST API about GPUs and the fleet, until Ctrl-C."""
    require_extra("fastapi")
    token = None if token_file is None else _token(token_file)
    is_secured = certificate is not None and token is not None
    danger = "any machine that reaches it"
    check_exposure(host, is_secured, allow_insecure, danger, "--certificate and --token-file")
    reader, limits = _reader(tables, storage_option), _thresholds(thresholds)

    from penstock.telemetry.api import build_app
    from penstock.telemetry.api import serve as answer

    prices = _prices(price_per_gpu_hour, price_per_kwh)
    app = build_app(reader, limits, token, [host, socket.gethostname(), *(allow_host or ())], prices)
    with listening_on(host, port) as listening:
        own = f"[{host}]" if ":" in host else host
        url = f"{'http' if certificate is None else 'https'}://{own}:{listening.getsockname()[1]}"
        typer.echo(f"ready {url}/api/v1/gpus (documentation: {url}/docs)")
        if not reader.exists():
            typer.echo(f"there are no tables in {tables} yet; /readyz reports when there are", err=True)
        try:
            answer(app, listening, None if certificate is None else str(certificate))
        except OSError as error:
            raise Failure(f"--certificate {certificate}: {error.strerror or error}") from error


@examples("penstock telemetry report")
def report(
    tables: Place = "penstock-tables",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the files.")] = Path(
        "penstock-report"
    ),
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="Hours before the newest sample.")] = 24.0,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
    price_per_gpu_hour: PricePerGpuHour = None,
    price_per_kwh: PricePerKwh = None,
) -> None:
    """Write tables (CSV, Markdown) and plots (PNG) of the fleet, and show the tables' first rows."""
    require_extra("matplotlib")
    reader, limits = _reader(tables, storage_option), _thresholds(thresholds)
    if out.exists() and not out.is_dir():
        misused(f"--out {out} is a file; name a folder")

    from penstock.cli.output import print_table
    from penstock.telemetry.report import cells, write_report

    prices = _prices(price_per_gpu_hour, price_per_kwh)
    made = write_report(reader, out, hours=hours, thresholds=limits, prices=prices)
    for section in made.sections:
        if section.rows:
            typer.echo(f"{section.title}, {min(_ROWS_SHOWN, len(section.rows))} of {len(section.rows)}:")
            columns, *rows = cells(section, _ROWS_SHOWN)
            print_table(columns, rows)
    typer.echo(made.summary)
    if made.files:
        typer.echo(f"{len(made.files)} files in {out}; begin with {made.files[0]}")


@examples("penstock telemetry now")
def now(
    tables: Place = "penstock-tables",
    hostname: Annotated[str | None, typer.Option(help="Only GPUs of this host.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only GPUs of this workload.")] = None,
    pod: Annotated[str | None, typer.Option(help="Only GPUs of this pod.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="The most GPUs to show. [default: 40 in a table, all in JSON]"),
    ] = None,
    thresholds: ThresholdFile = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of each GPU at its newest sample: busy, idle, wasted, in trouble."""
    require_extra("deltalake")
    reader, limits = _reader(tables, storage_option), _thresholds(thresholds)

    from penstock.cli.output import print_json, print_table
    from penstock.telemetry.queries.gpus import Only
    from penstock.telemetry.queries.now import count_states, find_now

    found = find_now(reader, limits, Only(hostname, workload, pod))
    states = count_states(found)
    if as_json:
        items = [{**asdict(one), "last_seen": one.last_seen.isoformat()} for one in found[:limit]]
        print_json({"gpus": states, "total": len(found), "items": items})
        return
    if not found:
        raise Failure(f"no samples in {tables} yet, or none of these GPUs")
    print_table(
        ["gpu", "host", "state", "workload", "util", "memory", "power", "temp", "why"],
        map(_now_row, found[: limit or _NOW_SHOWN]),
    )
    newest = max(one.last_seen for one in found)
    counts = ", ".join(f"{number} {state}" for state, number in states.items() if number)
    typer.echo(f"{newest:%Y-%m-%d %H:%M:%S} UTC: {len(found)} GPUs: {counts}")


def _now_row(one: NowGpu) -> list[str]:
    def measured(value: float | None, unit: str) -> str:
        return "-" if value is None else f"{value:,.0f} {unit}"

    findings = list(one.findings)
    if "hot" in findings and one.temperature_c is not None and one.temperature_expected_c is not None:
        findings[findings.index("hot")] = f"hot: {one.temperature_expected_c:.0f} °C expected"
    why = "; ".join([*findings, *([one.evidence] if one.evidence else [])])
    values = [
        measured(one.gpu_util_percent, "%"),
        measured(one.memory_used_mib, "MiB"),
        measured(one.power_w, "W"),
        measured(one.temperature_c, "°C"),
    ]
    return [one.gpu_id, one.hostname or "-", one.state, one.workload or "-", *values, why]


def _prices(per_gpu_hour: float | None, per_kwh: float | None) -> Prices:
    from penstock.telemetry.queries.idleness import Prices

    return Prices(per_gpu_hour, per_kwh)


def _reader(tables: str, storage_option: list[str] | None) -> TableReader:
    from penstock.telemetry.queries.reader import TableReader

    if "://" not in tables and Path(tables).exists() and not Path(tables).is_dir():
        misused(f"--tables {tables} is a file; name the folder that `penstock telemetry run` writes to")
    try:
        return TableReader(tables, storage_options=storage_options(storage_option or ()))
    except (ValueError, OSError) as error:
        raise Failure(f"--tables {tables}: {error}") from error


def _thresholds(file: Path | None) -> Thresholds:
    from penstock.telemetry.thresholds import load_thresholds

    return load_thresholds(file.read_text() if file is not None else "")


def _token(path: Path) -> str:
    """The token in a file, which only its owner should be able to read."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(f"cannot read --token-file {path}: {reason}") from error
    if not token:
        misused(
            f"--token-file {path} is empty: write a token into it, for example with `openssl rand -hex 32`"
        )
    if is_open_to_others(path):
        typer.echo(f"other users of this machine can read {path}: chmod 600", err=True)
    return token
