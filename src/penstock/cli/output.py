"""What commands print: a table for people, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_UNLIMITED = 100_000


def print_json(document: object) -> None:
    """One JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: object) -> None:
    """One JSON document on one line, for streams of them."""
    print(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool, columns: Sequence[str], empty: str) -> None:
    """Rows as a table of `columns`, or all of them as a JSON list; `empty` is said where there are none."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        print(empty, file=sys.stderr)
    else:
        print_table(columns, ([_cell(row.get(column)) for column in columns] for row in rows))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; numbers to the right. On a pipe it keeps its full width, so that no value is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    content = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(content) and all(row[index].lstrip("-").isdigit() for row in content)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in content:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = _UNLIMITED
    console.print(table)


@contextmanager
def progress(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, nothing anywhere else; it is moved on by calling what it gives."""
    if not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total_bytes)
        yield lambda size: bar.advance(task, size)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
