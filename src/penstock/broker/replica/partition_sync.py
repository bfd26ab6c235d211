"""What the disk has of one partition: which bytes wait for a sync, and if acknowledgements wait for it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.flusher import Flusher
from penstock.model.errors import StorageError
from penstock.replication.follower import FollowerState
from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.log import Log

__all__ = ["PartitionSync", "sync_followers"]

log = get_logger("replica_fetcher")


class PartitionSync:
    """Plans the syncs of one partition's log with the flusher of its data directory."""

    __slots__ = (
        "_advanced",
        "acks_wait",
        "flush_records",
        "flush_s",
        "flusher",
        "hidden_bytes",
        "hosted",
        "log",
        "unsynced",
    )

    def __init__(self, log: Log, flusher: Flusher, advanced: Callable[[int, int], None]) -> None:
        """`advanced` is called with the end of what the disk has, and the hidden bytes below it."""
        self.log = log
        self.flusher = flusher
        self._advanced = advanced
        #: true if the flusher knows that bytes were written since it last planned a sync
        self.unsynced = False
        #: bytes that were appended and are above the high watermark until the disk has them
        self.hidden_bytes = 0
        #: false once the replica was removed from this broker
        self.hosted = True
        self.reconfigure(log.config)

    def reconfigure(self, config: LogConfig) -> None:
        #: `flush.ms` in seconds and `flush.messages` of the topic; None leaves flushing to the broker
        self.flush_s = config.flush_ms / 1000 if config.flush_ms < FOREVER else None
        self.flush_records = config.flush_messages if config.flush_messages < FOREVER else None
        #: true if an acknowledgement of the last append has to wait for a sync
        self.acks_wait = self.flusher.acks_wait
        # The planned sync may be too late for the new config: the next write plans another.
        self.unsynced = False

    def appended(self) -> None:
        """The log has new bytes."""
        if not self.unsynced:
            self.flusher.wrote(self)
        if self.flush_records is not None:
            unsynced_records = self.log.end_offset - self.log.recovery_point
            self.acks_wait = self.flusher.acks_wait or unsynced_records >= self.flush_records

    def sync_rest(self) -> bool:
        """Plan a sync of the unsynced part of the log; returns true if there is one to wait for."""
        if self.end_offset >= self.log.end_offset:
            return False
        if not self.unsynced:
            self.flusher.wrote(self)
        return True

    @property
    def end_offset(self) -> int:
        """The end offset that this replica counts for: of the synced part if acks wait for the disk."""
        return self.log.recovery_point if self.flusher.acks_wait else self.log.end_offset

    def flushed(self, end_offset: int, size: int) -> None:
        """The disk has everything below `end_offset`; `size` bytes of it were hidden so far."""
        self.hidden_bytes -= size
        if self.flusher.acks_wait:
            self._advanced(end_offset, size)

    def retire(self) -> None:
        """The replica was removed from this broker."""
        self.hosted = False
        self.flusher.forget(self)


async def sync_followers(
    unsynced: dict[Flusher, dict[FollowerState, None]], now_ms: Callable[[], int]
) -> dict[Flusher, dict[FollowerState, None]]:
    """Wait until appended records of followers are durable; returns those whose sync has failed.

    A partition that is added during a sync may not be part of it, and needs another one.
    """
    unsafe: dict[Flusher, dict[FollowerState, None]] = {}
    while unsynced:
        flusher, states = unsynced.popitem()
        try:
            await flusher.flush()
        except StorageError as e:
            log.error("replica_not_synced", directory=flusher.directory, error=str(e))
            for state in states:
                state.failed(now_ms())
            unsafe.setdefault(flusher, {}).update(states)
    return unsafe
