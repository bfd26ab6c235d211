"""Alerts from their changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.tables import TABLES, Tables, write_files
from penstock.telemetry.queries.alerts import Incident, find_incidents
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import Span, instant, milliseconds
from tests.telemetry.small_fleet import BEGIN_MS

BEGIN = instant(BEGIN_MS)


def of(reader: TableReader, rule: str) -> Incident:
    (found,) = [one for one in find_incidents(reader) if one.rule == rule]
    return found


def test_an_alert_is_one_from_opening_to_resolution(reader: TableReader) -> None:
    xid = of(reader, "xid")
    assert (xid.subject, xid.state, xid.severity, xid.hostname, xid.job) == (
        "GPU-a0",
        "resolved",
        "critical",
        "host-1",
        "train-1",
    )
    assert (xid.measure, xid.action) == (79.0, "drain and reboot the host; then test the hardware")
    assert xid.since == BEGIN + timedelta(minutes=30)
    assert xid.opened_at == BEGIN + timedelta(minutes=30, seconds=10)
    assert xid.resolved_at == xid.changed_at
    assert xid.changed_at >= BEGIN + timedelta(minutes=60)


def test_an_alert_that_is_open(reader: TableReader) -> None:
    idle = of(reader, "idle_occupied")
    assert (idle.subject, idle.state, idle.resolved_at) == ("GPU-a1", "open", None)
    assert idle.since == BEGIN
    assert idle.opened_at >= BEGIN + timedelta(minutes=5)


def test_the_newest_come_first(reader: TableReader) -> None:
    opened = [one.opened_at for one in find_incidents(reader)]
    assert len(opened) >= 5
    assert opened == sorted(opened, reverse=True)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 30, False),
        (0, 31, True),
        (40, 50, True),
        (62, 70, False),
    ],
)
def test_alerts_of_a_span(reader: TableReader, start: int, end: int, expected: bool) -> None:
    def at(minute: int) -> int:
        moment: datetime = BEGIN + timedelta(minutes=minute)
        return milliseconds(moment)

    assert of(reader, "xid").overlaps(Span(at(start), at(end))) is expected


def test_a_resolution_in_a_later_batch_counts_with_any_timestamp(tmp_path: Path) -> None:
    schema = TABLES["alerts"]
    for batch_id, (state, second) in enumerate((("open", 20), ("resolved", 10))):
        change = {
            "at": BEGIN + timedelta(seconds=second),
            "since": BEGIN,
            "state": state,
            "batch_id": batch_id,
        }
        alert = {"rule": "silent", "subject": "GPU-a0", "severity": "critical", **change}
        files = write_files(Store(str(tmp_path)), "alerts", pa.Table.from_pylist([alert], schema))
        Tables(str(tmp_path)).commit("alerts", files, "query", batch_id)
    assert of(TableReader(str(tmp_path)), "silent").state == "resolved"


def test_no_table_no_alerts(tmp_path: Path) -> None:
    assert find_incidents(TableReader(str(tmp_path))) == []
