"""The clocks of the brokers, and the confirmation that this machine's time is right."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from penstock.cli.alteration import alter_common
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest

__all__ = ["clock_rows", "confirm_time", "utc"]

_CONFIRMED: Final = "penstock.clock.confirmed.ms"
#: a broker whose clock differs by more has another time
_AGREES_S: Final = 60.0
#: brokers look at their clocks every second
_EFFECT_S: Final = 5.0
_LOOK_S: Final = 0.5


def clock_rows(line: DirectLine) -> list[dict[str, Any]]:
    """The clock of every broker, how far it is ahead of this machine's, and why it deletes nothing."""
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
    addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}
    began_ms = _now_ms()
    answers = line.send_each(addresses.values(), DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=[]))
    now_ms = (began_ms + _now_ms()) // 2
    rows = []
    for broker, address in sorted(addresses.items()):
        answer = answers.get(address)
        clock_ms = -1 if answer is None else answer.clock_ms
        rows.append(
            {
                "broker": broker,
                "clock": None if clock_ms < 0 else utc(clock_ms),
                "ahead_s": None if clock_ms < 0 else round((clock_ms - now_ms) / 1000, 1),
                "deletion_suspended": "" if answer is None else answer.deletion_suspended,
            }
        )
    return rows


def confirm_time(line: DirectLine, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Confirm this machine's time to all brokers; returns the clocks once brokers that have it continue.

    A round of retention that waits continues with the next round.
    """
    agreeing = {row["broker"] for row in rows if _agrees(row)}
    if not agreeing:
        raise Failure(f"no broker has this machine's time, {utc(None)}: set the clocks first")
    alter_common(line, {_CONFIRMED: str(_now_ms())}, [])
    deadline = time.monotonic() + _EFFECT_S
    while True:
        rows = clock_rows(line)
        waiting = any(row["deletion_suspended"] for row in rows if row["broker"] in agreeing)
        if not waiting or time.monotonic() > deadline:
            return rows
        time.sleep(_LOOK_S)


def _agrees(row: dict[str, Any]) -> bool:
    return row["ahead_s"] is not None and abs(row["ahead_s"]) <= _AGREES_S


def utc(time_ms: int | None) -> str:
    """A time for a reader; this machine's time for None."""
    seconds = (_now_ms() if time_ms is None else time_ms) / 1000
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
