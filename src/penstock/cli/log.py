"""`penstock log dump|verify`: the files of a log, read without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.failure import FAILED, Failure
from penstock.cli.options import AsJson

app = typer.Typer(help="Look into segments and indexes on disk.", no_args_is_help=True)

Paths = Annotated[list[Path], typer.Argument(metavar="FILE", help="A .log, an index, or a snapshot.")]


@app.command("dump")
def dump_files(
    paths: Paths,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show every record, not only batches.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a file holds, an entry per line."""
    from penstock.broker.world import OsFiles
    from penstock.cli.output import print_json_line
    from penstock.storage.dump import dump

    files = OsFiles()
    for path in paths:
        _check_readable(path)
        for entry in dump(files, str(path.absolute()), records=records):
            if as_json:
                print_json_line(_printable(entry))
            else:
                print(" ".join(f"{name}={_shown(value)}" for name, value in entry.items()))


@app.command("verify")
def verify_files(paths: Paths, as_json: AsJson = False) -> None:
    """Check every batch and index entry; exit 1 if anything is wrong."""
    from penstock.broker.world import OsFiles
    from penstock.cli.output import print_rows
    from penstock.storage.dump import verify

    files = OsFiles()
    rows: list[dict[str, Any]] = []
    for path in paths:
        _check_readable(path)
        report = verify(files, str(path.absolute()))
        rows.append(
            {
                "file": str(path),
                "ok": report.ok,
                "batches": report.batches,
                "records": report.records,
                "problems": [str(problem) for problem in report.problems],
            }
        )
    columns = ("file", "ok", "batches", "records", "problems")
    print_rows(rows, as_json=as_json, columns=columns, empty="nothing to verify")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(FAILED)


def _check_readable(path: Path) -> None:
    if not path.is_file():
        raise Failure(f"{path} is not a file: name a segment or an index, such as 00000000000000000000.log")


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value))
    return str(value)


def _printable(value: Any) -> Any:
    """A dumped entry in JSON's terms: bytes as text where they are, else with escapes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: _printable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(part) for part in value]
    return value
