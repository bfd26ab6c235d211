"""Takes days out of the table of samples, and remembers up to where.

The record is written before rows go: whoever compares samples with rollups must not take days that have
expired for lost ones, and a record of days that are still there costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.jobs.storage import Store
from penstock.telemetry.expiry.rule import day_after, span_of_day
from penstock.telemetry.pipeline.tables import DAY

__all__ = ["days_of", "days_with_strays", "expired_before", "remove_days"]

_RECORD: Final = "_queries/expired-samples.json"


def days_of(samples: DeltaTable) -> list[str]:
    """The days that the table has rows of."""
    return sorted({str(each[DAY]) for each in samples.partitions()})


def days_with_strays(samples: DeltaTable) -> set[str]:
    """The days whose files have samples of other days, by the statistics of the files.

    The pipeline writes none; whoever writes the table again by local dates does. A proof counts samples by
    their times, and the files of such a day would take samples with them that it has not counted.
    """
    files = pa.table(samples.get_add_actions(flatten=True))
    edges = [f"{edge}.at" for edge in ("min", "max")]
    if not len(files) or any(edge not in files.column_names for edge in edges):
        return set()
    low, high = (
        pc.cast(files[edge], pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for edge in edges
    )
    found = set()
    for day, first_us, last_us in zip(files[f"partition.{DAY}"].to_pylist(), low, high, strict=True):
        span = span_of_day(str(day))
        # Statistics of milliseconds may be rounded up to midnight.
        if (
            None not in (first_us, last_us)
            and not span.start * 1000 <= first_us <= last_us <= span.end * 1000
        ):
            found.add(str(day))
    return found


def expired_before(place: Store) -> str | None:
    """The day from which on samples were kept; None if no day has expired yet."""
    if not place.exists(_RECORD):
        return None
    return str(json.loads(place.read(_RECORD))["before"])


def remove_days(place: Store, samples: DeltaTable, days: Sequence[str]) -> int:
    """Remove the rows of these days in one commit, and say in how many files they were.

    `samples` is the version in which the days were looked at: rows that came since stay. Readers of older
    versions find the files until vacuum removes them.
    """
    before = max(day_after(max(days)), expired_before(place) or "")
    place.write(_RECORD, json.dumps({"before": before}).encode())
    wanted = ", ".join(f"'{day}'" for day in days)
    metrics = samples.delete(f"{DAY} IN ({wanted})")
    return int(metrics["num_removed_files"])
