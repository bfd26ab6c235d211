"""Options that several commands share, and the reading of `key=value` pairs and times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from penstock.cli.failure import misused
from penstock.model.addresses import parse_bootstrap


def _seconds(text: str) -> float:
    """A time to wait: a number between a tenth of a second and ten days."""
    try:
        seconds = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None
    # NaN is in no range, and clients cannot wait for an infinite time.
    if not 0.1 <= seconds <= 864_000:
        raise typer.BadParameter(f"{text} is not in the range from 0.1 to 864000 seconds")
    return seconds


def addresses(text: str) -> str:
    """Addresses of brokers, each of them HOST:PORT."""
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        parser=addresses,
        metavar="HOST:PORT",
        help="Brokers to connect to: HOST:PORT[,HOST:PORT...].",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", parser=_seconds, metavar="SECONDS", help="Seconds to wait for a response."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DataDirectory: TypeAlias = Annotated[Path, typer.Option("--data", "-d", help="Directory of the cluster.")]
ClusterIn: TypeAlias = Annotated[
    Path | None, typer.Option("--data", "-d", help="Directory of a cluster, instead of --bootstrap.")
]
Patience: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", parser=_seconds, metavar="SECONDS", help="Seconds to wait for the end."),
]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
DEFAULT_FIRST_ID = 1
DEFAULT_BROKERS = 5
DEFAULT_TIMEOUT = 10.0


def pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """`key=value` texts as a mapping; the value may be empty, the key may not."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            misused(f"{what} {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


def milliseconds(text: str, option: str) -> int:
    """Milliseconds since 1970 from digits or from an ISO 8601 time, local unless it says otherwise."""
    if text.isdigit():
        return int(text)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        misused(f"{option} {text!r} is neither milliseconds nor a time like 2030-01-31T12:00:00Z")
