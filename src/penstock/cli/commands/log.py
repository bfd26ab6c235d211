"""`penstock log dump|verify|quarantine`: reads log files without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.commands import quarantine
from penstock.cli.data_files import data_files
from penstock.cli.failure import FAILED, Failure
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson
from penstock.cli.output import print_json_line, print_rows, progress

app = typer.Typer(help="Print and verify segments and indexes on disk.", no_args_is_help=True)
app.add_typer(quarantine.app, name="quarantine")

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="A segment, index or snapshot, or a directory with any number of them."
    ),
]


@app.command("dump")
@examples("penstock log dump penstock-data --records")
def dump_files(
    paths: Paths,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Print every record, not only batches.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the entries of files, one per line; with several files, each after a line with its path."""
    for entry in _dumped(paths, records):
        if as_json:
            print_json_line(_printable(entry))
        else:
            print(" ".join(f"{name}={value}" for name, value in entry.items()))


@app.command("verify")
@examples("penstock log verify penstock-data")
def verify_files(paths: Paths, as_json: AsJson = False) -> None:
    """Check batches, index entries, and for missing offsets; exit with 1 if anything is wrong.

    Segments must be contiguous, from the log start to the recovery point in the data directory's checkpoints.
    """
    from penstock.storage.dump import verify

    files = data_files(*paths)
    places = [place for path in paths for place in _places(path)]
    rows: list[dict[str, Any]] = []
    with progress("verify", sum(map(_segment_bytes, places))) as advance:
        for place in places:
            report = verify(files, str(place.absolute()), advance)
            rows.append(
                {
                    "file": str(place),
                    "ok": report.ok,
                    "batches": report.batches,
                    "records": report.records,
                    "missing": report.missing,
                    "problems": report.problems,
                }
            )
    columns = ("file", "ok", "batches", "records", "missing", "problems")
    print_rows(rows, as_json=as_json, columns=columns, empty="nothing to verify")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(FAILED)


def _dumped(paths: list[Path], records: bool) -> Iterator[dict[str, Any]]:
    """The entries of all files. Paths are relative to the directory, or as given if there are several."""
    from penstock.storage.dump import dump

    files = data_files(*paths)
    several = len(paths) > 1
    for path in paths:
        if several and path.is_file():
            yield {"file": str(path)}
        for place in _places(path):
            shown = place if several else place.relative_to(path)
            for entry in dump(files, str(place.absolute()), records=records):
                yield {"file": str(shown / entry["file"])} if "file" in entry else entry


def _places(path: Path) -> list[Path]:
    """The file itself; for a directory, each directory in it that has segments."""
    if path.is_file():
        return [path]
    found = sorted({segment.parent for segment in path.rglob("*.log")}) if path.is_dir() else []
    if not found:
        raise Failure(f"{path} has no log: name a segment such as 00000000000000000000.log, or a directory")
    return found


def _segment_bytes(place: Path) -> int:
    """The size of the segments in `place`, which determines the time to verify it."""
    files = [place] if place.is_file() else place.iterdir()
    return sum(file.stat().st_size for file in files if file.suffix == ".log")


def _printable(value: Any) -> Any:
    """A dumped entry for JSON: bytes as text, with escapes for other bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: _printable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(part) for part in value]
    return value
