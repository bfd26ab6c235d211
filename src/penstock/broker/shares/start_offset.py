"""The offset at which a share group starts in a partition that it has not read before."""

from __future__ import annotations

from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.replica.commits import knows_latest_offset
from penstock.broker.replica.partition import Partition
from penstock.model.config.offset_reset import EARLIEST, LATEST, OffsetReset
from penstock.model.errors import ApiError, ErrorCode
from penstock.ports import Workers

__all__ = ["reset_offset"]


async def reset_offset(partition: Partition, reset: OffsetReset, now_ms: int, workers: Workers) -> int:
    """The offset by share.auto.offset.reset. Raises OFFSET_NOT_AVAILABLE while a new leader lacks the end."""
    log = partition.log
    if reset.strategy == EARLIEST:
        return log.log_start_offset
    if not knows_latest_offset(partition):
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    if reset.strategy == LATEST:
        return log.high_watermark
    timestamp, start = max(0, now_ms - reset.duration_ms), log.log_start_offset
    while True:
        at = start
        dated = await retry_when_cached(
            partition,
            workers,
            lambda: log.batch_at_or_after(timestamp, at, cached_only=True),  # noqa: B023
        )
        if dated is None:
            return log.high_watermark
        found = await workers.in_thread(dated.first)
        if found is not None:
            return min(found.offset, log.high_watermark)
        start = dated.next_offset
