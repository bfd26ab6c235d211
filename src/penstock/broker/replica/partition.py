"""One replica on this broker: its log, its role, pending fetches, and the end of what readers may see.

A replica leads, follows, or does neither while there is no leader. `Replicas` assigns the role from the
metadata. Readers see records below the high watermark. With one replica, the high watermark is the log's end;
if acks wait for the disk (`penstock.flush=group`), it is the end of what the disk has confirmed. With several
replicas, the leader's `Leadership` moves it, and followers take it over from their leader.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from penstock.broker.base.metrics import TopicStats
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.leadership import Follower, Leadership
from penstock.model.errors import (
    FencedLeaderEpoch,
    InvalidTopic,
    NotLeaderOrFollower,
    StorageError,
    UnknownLeaderEpoch,
)
from penstock.model.ids import INTERNAL_TOPICS, TopicId
from penstock.records.codecs import Codec
from penstock.replication.epochs import epoch_end
from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.guards import VerificationGuard
from penstock.storage.log import Appended, AppendOrigin, Log
from penstock.storage.validation import Rules
from penstock.wire.messages import Skeleton

__all__ = ["Partition", "PendingAppends", "Waiter"]

#: more bytes than any request waits for
_A_LOT: Final = 1 << 62


class Waiter(Protocol):
    """A request that waits for more bytes below the high watermark, or below the last stable offset."""

    def more(self, size: int) -> None: ...


class PendingAppends:
    """The tasks of deferred appends to a partition, and the lock that keeps them in order."""

    __slots__ = ("order", "tasks")

    def __init__(self) -> None:
        self.order = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()


class Partition:
    """One replica.

    Why it has more than 25 methods: it is the one object that requests, the flusher, the leadership and the
    roles share, and the methods of each are a few lines on the same state.
    """

    __slots__ = (
        "_flush_records",
        "acknowledgements",
        "codec",
        "committed_waiters",
        "compression_level",
        "directory",
        "flush_s",
        "flusher",
        "followers",
        "hidden_bytes",
        "hosted",
        "index",
        "internal",
        "leader_epoch",
        "leader_high_watermark",
        "leadership",
        "leading",
        "log",
        "pending",
        "rewriting",
        "stats",
        "sync_due",
        "topic",
        "topic_id",
        "unsynced",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        directory: DataDirectory,
        flusher: Flusher,
        acknowledgements: dict[int, Skeleton],
        stats: TopicStats,
    ) -> None:
        """`acknowledgements` are prepared Produce responses by version.

        A topic's partitions share them, and `stats`. Longer than other functions because every attribute has
        its line and most have a comment.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        #: only the broker itself may append: a coordinator relies on what it reads back
        self.internal = topic in INTERNAL_TOPICS
        self.log = log
        self.stats = stats
        #: the latest leader epoch that this broker has applied
        self.leader_epoch = -1
        #: of the leader's last response, on a follower
        self.leader_high_watermark = 0
        self.leading = False
        #: false once the replica was removed from this broker
        self.hosted = True
        #: the state of a leader with followers; None for a single replica and for a follower
        self.leadership: Leadership | None = None
        #: the replicas that fetch from this one: an insertion-ordered set
        self.followers: dict[Follower, None] = {}
        #: insertion-ordered set: the request that has waited longest is served first
        self.waiters: dict[Waiter, None] = {}
        #: As `waiters`, for readers of committed records, with the last stable offset up to which each has
        #: read. Only a move of that offset wakes them: behind an open transaction, each append would.
        self.committed_waiters: dict[Waiter, int] = {}
        self.directory = directory
        self.flusher = flusher
        #: bytes that were appended and are above the high watermark until the disk has them
        self.hidden_bytes = 0
        #: appends that a worker prepares; None if there are none
        self.pending: PendingAppends | None = None
        #: held while sealed segments are rewritten: by compaction, or by a repair of compacted segments
        self.rewriting = asyncio.Lock()
        #: true if the last append has to be synced before it is acknowledged (`flush.messages`)
        self.sync_due = False
        #: true if the flusher knows that bytes were written since it last planned a sync
        self.unsynced = False
        self.acknowledgements = acknowledgements
        self._configure(log.config)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply changed topic configs."""
        self.log.reconfigure(config)
        self._configure(config)
        # The planned sync may be too late for the new config: the next write plans another.
        self.unsynced = False
        if self.leadership is not None:
            self.leadership.reconfigure(config.min_insync_replicas)

    def _configure(self, config: LogConfig) -> None:
        name = config.compression_type
        #: the codec of `compression.type`; None keeps the producer's codec
        self.codec = None if name == "producer" else Codec.from_label(name)
        self.compression_level = None if self.codec is None else _compression_level(config, self.codec)
        #: `flush.ms` in seconds and `flush.messages` of the topic; None leaves flushing to the broker
        self.flush_s = config.flush_ms / 1000 if config.flush_ms < FOREVER else None
        self._flush_records = config.flush_messages if config.flush_messages < FOREVER else None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def acks_wait(self) -> bool:
        """Returns true if an acknowledgement of the last append has to wait for a sync."""
        return self.flusher.acks_wait or self.sync_due

    def append(
        self,
        batches: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append batches of a client or a coordinator as leader; writes offsets into `batches` in place."""
        if not self.leading or (self.internal and origin is AppendOrigin.CLIENT):
            self.check_client_append()
        flusher = self.flusher
        log = self.log
        if flusher.health.full is not None:
            log.check_room()
        size = len(batches)
        appended = log.appender.append(batches, self.leader_epoch, origin, checked_by, guard)
        if not appended.duplicate:
            if not self.unsynced:
                flusher.wrote(self)
            if self._flush_records is not None:
                self.sync_due = log.end_offset - log.recovery_point >= self._flush_records
            if self.leadership is not None:
                self.leadership.appended(size)
            elif flusher.acks_wait:
                self.hidden_bytes += size
            else:
                log.advance_high_watermark(log.end_offset)
                if self.waiters or self.committed_waiters:
                    self.wake_waiters(size)
        return appended

    def check_client_append(self) -> None:
        """Raise if a client's append would be refused whatever the batch."""
        if not self.leading:
            raise NotLeaderOrFollower
        if self.internal:
            raise InvalidTopic(f"Cannot append to internal topic {self.topic}")

    @property
    def own_end(self) -> int:
        """The end offset that this replica counts for: of the synced part if acks wait for the disk."""
        return self.log.recovery_point if self.flusher.acks_wait else self.log.end_offset

    def sync_rest(self) -> bool:
        """Plan a sync of the unsynced part of the log; returns true if there is one to wait for."""
        if self.own_end >= self.log.end_offset:
            return False
        if not self.unsynced:
            self.flusher.wrote(self)
        return True

    def append_replicated(self, batches: memoryview, leader_epoch: int) -> int:
        """Append batches that were fetched from the leader of `leader_epoch`; returns the bytes appended."""
        log, flusher = self.log, self.flusher
        if flusher.health.full is not None:
            log.check_room()
        size = log.appender.append_replicated(batches, leader_epoch)
        if size and not self.unsynced:
            flusher.wrote(self)
        return size

    def follow_watermarks(self, high_watermark: int, log_start_offset: int, size: int) -> None:
        """Apply the leader's high watermark and log start; `size` bytes were appended since the last call."""
        log = self.log
        before = log.high_watermark
        self.leader_high_watermark = high_watermark
        log.advance_high_watermark(high_watermark)
        if log_start_offset > log.explained_start:
            log.delete_records(min(log_start_offset, log.high_watermark))
        if (self.waiters or self.committed_waiters) and log.high_watermark > before:
            self.wake_waiters(max(size, 1))

    def expire(self, now_ms: int | None) -> bool:
        """Move the log start according to retention; the next fetch responses carry it to followers.

        Without `now_ms` the time is not known, and no segment is too old.
        Returns true if `Retention.remove_expired` has segments to remove once the log start has been saved.
        """
        expired = self.log.retention.expire(now_ms, cached_only=True)
        if expired:
            for follower in self.followers:
                follower.moved()
        return expired

    def advance_log_start(self, offset: int) -> None:
        """Delete the records below a committed offset; the next fetch responses carry it to followers."""
        if offset > self.log.explained_start:
            self.log.delete_records(offset)
            for follower in self.followers:
                follower.moved()

    def flushed(self, end_offset: int, size: int) -> None:
        """The disk has everything below `end_offset`; `size` bytes of it were hidden so far."""
        self.hidden_bytes -= size
        if not (self.flusher.acks_wait and self.leading):
            return
        if self.leadership is not None:
            self.leadership.became_durable(end_offset)
        elif end_offset > self.log.high_watermark:
            self.log.advance_high_watermark(end_offset)
            if self.waiters or self.committed_waiters:
                # Bytes from before this leadership were not counted.
                self.wake_waiters(max(size, 1))

    def check_leader_epoch(self, current_leader_epoch: int, only_leader: bool = True) -> None:
        """Raise if a request's leader epoch is not this replica's (KIP-320)."""
        if only_leader and not self.leading:
            raise NotLeaderOrFollower
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch
        raise UnknownLeaderEpoch

    def check_online(self) -> None:
        self.flusher.health.check()

    def read_failed(self, error: OSError) -> StorageError:
        """The error to raise after a failed read of the log's bytes."""
        return self.flusher.health.failed(error, f"cannot read {self.log.path}")

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The end of a leader epoch. The log has an epoch from its first batch on, a leader before that."""
        return epoch_end(self.log, self.leader_epoch, epoch)

    def readable_end(self, committed: bool) -> int:
        """The end of reads: the last stable offset if only `committed` transactions are read."""
        log = self.log
        return log.last_stable_offset if committed else log.high_watermark

    @property
    def lag(self) -> int:
        """The committed records that a follower lacks; 0 on a leader."""
        return 0 if self.leading else max(0, self.leader_high_watermark - self.log.end_offset)

    # -- roles

    def lead(self, leader_epoch: int, leadership: Leadership | None) -> None:
        """Become leader. `leadership` is None for a single replica."""
        self._end_leadership()
        self.leader_epoch = leader_epoch
        self.leading = True
        self.leadership = leadership
        if leadership is None:
            self.log.advance_high_watermark(self.own_end)
        else:
            leadership.begin()
        self.sync_rest()
        self._wake_all()

    def follow(self, leader_epoch: int) -> None:
        """Stop leading: another replica leads in `leader_epoch`, or none does."""
        self.leader_epoch = leader_epoch
        self.leading = False
        self._end_leadership()
        self._wake_all()

    def step_down(self) -> None:
        """Stop leading: another replica leads, in an epoch that this broker has not applied yet."""
        self.follow(self.leader_epoch)

    def retire(self) -> None:
        """The replica was removed from this broker; waiting requests are woken and find out."""
        self.hosted = False
        self.follow(self.leader_epoch)

    def _end_leadership(self) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            leadership.resign()

    def _wake_all(self) -> None:
        """The role has changed: waiting requests and followers have to look at the partition again."""
        for waiter in [*self.waiters, *self.committed_waiters]:
            waiter.more(_A_LOT)
        for follower in list(self.followers):
            follower.grew(_A_LOT)

    def wake_waiters(self, size: int) -> None:
        """Readers can see `size` bytes more, readers of committed records up to the last stable offset."""
        for waiter in list(self.waiters):
            waiter.more(size)
        waiting = self.committed_waiters
        if waiting:
            log = self.log
            producers = log.producers
            stable = log.high_watermark if producers.first_unstable is None else log.last_stable_offset
            for waiter, known in list(waiting.items()):
                if stable > known:
                    waiting[waiter] = stable
                    waiter.more(self._bytes_between(known, stable) if producers.had_transactions else size)

    def _bytes_between(self, start: int, end: int) -> int:
        """The bytes that became visible. Behind a transaction these are not the bytes that came last."""
        found = self.log.bytes_between(start, end)
        return _A_LOT if found is None else max(found, 1)


def _compression_level(config: LogConfig, codec: Codec) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)
