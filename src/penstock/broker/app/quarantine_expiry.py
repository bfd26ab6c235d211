"""Deletes entries of the quarantine after `penstock.quarantine.retention.ms`.

The age of an entry is measured twice: by the wall clock, and by the monotonic clock while a broker runs,
which the entry stores. Both must exceed the retention. So a wall clock that jumps ahead deletes nothing, and
time in which the broker was stopped does not count. While the wall clock is not trusted, nothing is deleted.
An entry whose `quarantine.json` is damaged is reported and never deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.ports import Clock, Workers
from penstock.storage.quarantine import KEEP_FOREVER, QuarantineEntry

__all__ = ["QuarantineExpiry"]

log = get_logger("maintenance")
_HOUR_MS: Final = 3_600_000


class QuarantineExpiry:
    """Expires the quarantine of all data directories of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        clock: Clock,
        workers: Workers,
        trusted_now_ms: Callable[[], int | None],
    ) -> None:
        """`trusted_now_ms` is the wall clock's time, None while it is not trusted."""
        self._config = config
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._trusted_now_ms = trusted_now_ms
        self._counted_at = clock.monotonic()

    @property
    def interval_ms(self) -> int:
        """The interval of `expire`, short enough that a restart loses little of the measured age."""
        retention_ms = self._config.penstock_quarantine_retention_ms
        return _HOUR_MS if retention_ms < 0 else max(1000, min(_HOUR_MS, retention_ms // 8))

    async def expire(self) -> None:
        """Add the time since the last call to all entries, and delete expired ones."""
        now = self._clock.monotonic()
        elapsed_ms, self._counted_at = int((now - self._counted_at) * 1000), now
        now_ms = self._trusted_now_ms()
        retention_ms = KEEP_FOREVER if now_ms is None else self._config.penstock_quarantine_retention_ms
        for directory in self._partitions.directories:
            if directory.health.offline is None:
                quarantine = directory.quarantine
                expired = await self._workers.in_thread(
                    quarantine.keep, elapsed_ms, now_ms or 0, retention_ms
                )
                for name in quarantine.damaged:
                    log.error("quarantine_entry_damaged", path=quarantine.entry_path(name))
                for entry in expired:
                    if await self._workers.in_thread(quarantine.expire, entry):
                        _log_deleted(quarantine.path, entry)


def _log_deleted(path: str, entry: QuarantineEntry) -> None:
    log.info(
        "quarantine_expired",
        topic=entry.topic,
        partitions=entry.partitions,
        bytes=entry.size,
        path=f"{path}/{entry.name}",
    )
