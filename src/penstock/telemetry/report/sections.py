"""Tables of a report: rows of one kind, as CSV with nine digits, and for people with few."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

__all__ = ["Section", "cells", "markdown", "write_csv"]


@dataclass(frozen=True, slots=True)
class Section:
    """A table: rows are dataclasses of the class `kind`, whose fields are the columns."""

    name: str
    title: str
    kind: type
    rows: Sequence[Any]


def write_csv(section: Section, path: Path) -> None:
    columns = [field.name for field in fields(section.kind)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_stable(getattr(row, name)) for name in columns] for row in section.rows)


def cells(section: Section, most: int) -> list[list[str]]:
    """The columns' names, and then the first rows, for people."""
    columns = [field.name for field in fields(section.kind)]
    rows = [[_legible(getattr(row, name)) for name in columns] for row in section.rows[:most]]
    return [columns, *rows]


def markdown(section: Section, most: int) -> str:
    """The first rows as a Markdown table; the CSV file has all of them."""
    if not section.rows:
        return "None.\n"
    columns, *rows = cells(section, most)
    lines = [columns, ["---"] * len(columns), *rows]
    table = "".join(f"| {' | '.join(each.replace('|', '&#124;') for each in line)} |\n" for line in lines)
    left = len(section.rows) - len(rows)
    return table + (f"\n{left} more in [{section.name}.csv]({section.name}.csv).\n" if left else "")


def _stable(value: object) -> object:
    if isinstance(value, float):
        # Several threads compute the sums: further digits depend on their order.
        return float(f"{value:.9g}")
    if isinstance(value, datetime):
        return value.isoformat()
    return " ".join(value) if isinstance(value, list) else value


def _legible(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
