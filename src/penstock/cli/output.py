"""The output of commands: tables, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from penstock.model.visible import visible

#: columns up to this width keep it on a narrow terminal, so that the wide ones are folded
_NEVER_FOLDED: Final = 24
#: how values of a column look on a terminal; rich leaves colours out where NO_COLOR is set
_STYLES: Final[Mapping[str, Mapping[str, str]]] = {
    "state": {
        "up": "green",
        "stable": "green",
        "done": "green",
        "moving": "yellow",
        "fenced": "yellow",
        "empty": "yellow",
        "assigning": "yellow",
        "reconciling": "yellow",
        "preparing rebalancing": "yellow",
        "completing rebalancing": "yellow",
        "down": "bold red",
        "silent": "bold red",
        "dead": "bold red",
    },
    "ok": {"yes": "green", "no": "bold red"},
    "leader": {"-": "bold red"},
}


def print_json(document: object) -> None:
    """One JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: object) -> None:
    """One JSON document on one line, for streams of them."""
    print(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool, columns: Sequence[str], empty: str) -> None:
    """Print rows as a table of `columns`, or as a JSON list; prints `empty` if there are none."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        print(empty, file=sys.stderr)
    else:
        print_table(columns, ([_cell(row.get(column)) for column in columns] for row in rows))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table: one line per row, numbers aligned to the right, no trailing spaces.

    On a terminal, states are coloured, and long values are folded if the terminal is too narrow. Elsewhere
    values are complete.
    """
    content = [[_on_one_line(cell) for cell in row] for row in rows]
    headers = [column.replace("_", " ") for column in columns]
    numeric = [
        bool(content) and all(row[index].lstrip("-").isdigit() for row in content)
        for index in range(len(headers))
    ]
    if sys.stdout.isatty():
        _print_for_terminal(headers, content, numeric)
        return
    widths = _widths(headers, content)
    for row in (headers, *content):
        cells = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        )
        print("  ".join(cells).rstrip())


def print_line(text: str, style: str = "") -> None:
    """One line, in a style of rich's on a terminal that has colours."""
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, style), soft_wrap=True)


def _print_for_terminal(headers: list[str], content: list[list[str]], numeric: list[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, widths = Console(), _widths(headers, content)
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= console.width else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for header, is_number, width in zip(headers, numeric, widths, strict=True):
        narrowest = width if width <= _NEVER_FOLDED else None
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(header, justify=justify, overflow="fold", min_width=narrowest)
    for row in content:
        styles = (_STYLES.get(header, {}).get(cell, "") for header, cell in zip(headers, row, strict=True))
        table.add_row(*(Text(cell, style) for cell, style in zip(row, styles, strict=True)))
    console.print(table)


def _widths(headers: list[str], content: list[list[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(headers, *content, strict=True)]


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal, nothing elsewhere; yields the function that advances it.

    None for `total`: the end is not known.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _on_one_line(text: str) -> str:
    """Without control characters: clients choose names, and a terminal obeys its escape sequences."""
    return text if text.isprintable() else visible(text).replace("\n", "\u240a").replace("\t", "\u2409")
