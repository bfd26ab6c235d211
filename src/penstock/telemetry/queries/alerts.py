"""Alerts, assembled from their changes: the GPU, the rule, the begin and the end of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow.compute as pc

from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import Span, milliseconds

__all__ = ["Incident", "find_incidents"]

_KEY: Final = ["rule", "subject", "since"]
_LAST: Final = (
    *("state", "severity", "hostname", "device", "pci_bus_id", "workload", "job", "pod"),
    *("measure", "evidence", "action"),
)
#: columns of the alert's begin: the row of its resolution has other values, or none
_WHILE_OPEN: Final = ("measure", "evidence", "action")


@dataclass(frozen=True, slots=True)
class Incident:
    """One alert from its opening on. `subject` is a GPU, or the host for rules about hosts."""

    rule: str
    subject: str
    state: str
    severity: str
    #: when it began to be so, as far as samples say; the alert opens when that has lasted
    since: datetime
    opened_at: datetime
    changed_at: datetime
    resolved_at: datetime | None
    hostname: str | None
    #: the place of the GPU in its host
    device: str | None
    pci_bus_id: str | None
    workload: str | None
    job: str | None
    pod: str | None
    measure: float | None
    #: the evidence of the rule
    evidence: str | None
    action: str | None

    def overlaps(self, span: Span) -> bool:
        is_over = self.resolved_at is not None and milliseconds(self.resolved_at) < span.start
        return milliseconds(self.opened_at) < span.end and not is_over


def find_incidents(reader: TableReader) -> list[Incident]:
    """All of them, the newest first. There are few: the table has a row for each change only."""
    extent = reader.extent("alerts")
    if extent is None:
        return []
    changes = reader.read("alerts", extent, ["at", *_KEY, *_LAST, "batch_id"])
    # A change may be repeated while its alert is open. The row of a later batch is right, at any time.
    changes = changes.sort_by([("batch_id", "ascending"), ("at", "ascending")])
    is_open = pc.equal(changes["state"], "open")
    for name in _WHILE_OPEN:
        values = pc.if_else(is_open, changes[name], None)
        changes = changes.set_column(changes.column_names.index(name), name, values)
    # The last one that is not null.
    measures = [("at", "min"), ("at", "max"), *((name, "last") for name in _LAST)]
    grouped = changes.group_by(_KEY, use_threads=False).aggregate(measures)
    incidents = [
        Incident(
            **{name: row[name] for name in _KEY},
            **{name: row[f"{name}_last"] for name in _LAST},
            opened_at=row["at_min"],
            changed_at=row["at_max"],
            resolved_at=row["at_max"] if row["state_last"] == "resolved" else None,
        )
        for row in grouped.to_pylist()
    ]
    return sorted(incidents, key=lambda one: (one.opened_at, one.rule, one.subject), reverse=True)
