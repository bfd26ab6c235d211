"""Takes days out of the table of samples, and remembers up to where.

The record is written before rows go: whoever compares samples with rollups must not take days that have
expired for lost ones, and a record of days that are still there costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable

from penstock.jobs.storage import Store
from penstock.telemetry.expiry.rule import day_after
from penstock.telemetry.pipeline.tables import DAY

__all__ = ["days_of", "expired_before", "remove_days"]

_RECORD: Final = "_queries/expired-samples.json"


def days_of(samples: DeltaTable) -> list[str]:
    """The days that the table has rows of."""
    return sorted({str(each[DAY]) for each in samples.partitions()})


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
