"""Names of topics and counts that other processes use. Imports nothing, so that they start fast."""

from __future__ import annotations

from typing import Final

__all__ = ["ALERTS", "DEAD_LETTERS", "VERDICTS", "WORKER_DAEMON"]

#: the module that forks Python workers
WORKER_DAEMON: Final = "penstock.telemetry.pipeline.worker_daemon"

#: topics
ALERTS: Final = "gpu.alerts"
DEAD_LETTERS: Final = "gpu-telemetry.dlq"
#: the outcomes of a message, as batches count them
VERDICTS: Final = ("valid", "dead_lettered", "duplicates", "late")
