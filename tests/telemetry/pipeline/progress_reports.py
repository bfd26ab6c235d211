"""Progress reports of streaming queries."""

from __future__ import annotations

from penstock.telemetry.pipeline.batches import BatchReport
from penstock.telemetry.pipeline.detectors import Alert
from penstock.telemetry.pipeline.shard import Counts
from tests.telemetry.pipeline.messages import NOW_MS

NOW_S = NOW_MS / 1000


def report(batch_id: int = 7) -> BatchReport:
    alert = Alert(
        *(NOW_MS, "xid", "GPU-1", "open", "critical", NOW_MS, "host-1"),
        *(None, None, None, None, None),
        *(79.0, None, "reboot"),
    )
    counts = Counts(100, 90, 5, 3, 2, NOW_MS - 4000)
    return BatchReport(batch_id, counts, NOW_MS - 30_000, NOW_MS - 3000, [alert])
