"""`penstock log dump|verify`: the files of a log, read without a broker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.failure import FAILED, Failure
from penstock.cli.options import AsJson

app = typer.Typer(help="Look into segments and indexes on disk.", no_args_is_help=True)

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="A segment, index or snapshot, or a directory with any number of them."
    ),
]


@app.command("dump")
def dump_files(
    paths: Paths,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show every record, not only batches.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what files hold, an entry per line."""
    from penstock.broker.world import OsFiles
    from penstock.cli.output import print_json_line
    from penstock.storage.dump import dump

    files = OsFiles()
    for place in _places(paths):
        for entry in dump(files, str(place.absolute()), records=records):
            if as_json:
                print_json_line(_printable(entry))
            else:
                print(" ".join(f"{name}={value}" for name, value in entry.items()))


@app.command("verify")
def verify_files(paths: Paths, as_json: AsJson = False) -> None:
    """Check every batch, and every index entry against its batch; exit 1 if anything is wrong."""
    from penstock.broker.world import OsFiles
    from penstock.cli.output import print_rows
    from penstock.storage.dump import verify

    files = OsFiles()
    rows: list[dict[str, Any]] = []
    for place in _watched(list(_places(paths))):
        report = verify(files, str(place.absolute()))
        rows.append(
            {
                "file": str(place),
                "ok": report.ok,
                "batches": report.batches,
                "records": report.records,
                "problems": report.problems,
            }
        )
    columns = ("file", "ok", "batches", "records", "problems")
    print_rows(rows, as_json=as_json, columns=columns, empty="nothing to verify")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(FAILED)


def _places(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as they are; for a directory, each one at or below it that has segments."""
    for path in paths:
        if path.is_file():
            yield path
            continue
        found = sorted({segment.parent for segment in path.rglob("*.log")}) if path.is_dir() else []
        if not found:
            raise Failure(
                f"{path} has no log: name a segment such as 00000000000000000000.log, or a directory"
            )
        yield from found


def _watched(places: list[Path]) -> Iterable[Path]:
    """The places, behind a progress bar on a terminal."""
    if len(places) < 2 or not sys.stderr.isatty():
        return places
    from rich.console import Console
    from rich.progress import track

    return track(places, description="verify", console=Console(stderr=True), transient=True)


def _printable(value: Any) -> Any:
    """A dumped entry in JSON's terms: bytes as text, with escapes where they are not."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: _printable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(part) for part in value]
    return value
