"""A partition that has a replica on this broker: its log, its role, who waits for it, what readers may see.

A replica leads, follows, or stands by while nobody leads; `Replicas` says which, as the metadata has it. What
readers may see ends at the high watermark. With one replica that is the log's end, or, where acks wait for
the disk (`penstock.flush=group`), what the disk has confirmed; with several, the leader's `Leadership` moves
it, and followers take it over from their leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

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
from penstock.storage.log import Appended, AppendOrigin, Log
from penstock.storage.validation import Rules
from penstock.wire.messages import Skeleton

if TYPE_CHECKING:
    from penstock.broker.replica.deferred_appends import PendingAppends
    from penstock.broker.replica.flusher import Flusher
    from penstock.broker.replica.leadership import Leadership

__all__ = ["Follower", "Partition", "Waiter"]


class Waiter(Protocol):
    """Someone who waits for more bytes below the high watermark."""

    def more(self, size: int) -> None: ...


class Follower(Protocol):
    """A replica elsewhere that fetches from here."""

    def grew(self, size: int) -> None:
        """There are `size` bytes more to fetch, or other news."""
        ...

    def moved(self) -> None:
        """The high watermark has moved, or the log's start."""
        ...


class Partition:
    """One replica. A partition whose directory failed keeps its place but not its log."""

    __slots__ = (
        "_flush_records",
        "acknowledgements",
        "codec",
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
        "leadership",
        "leading",
        "log",
        "pending",
        "rewriting",
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
    ) -> None:
        """`acknowledgements` are how producers are answered, by version; a topic's partitions share them."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        #: only the broker itself writes here: what it reads back it has to be able to believe
        self.internal = topic in INTERNAL_TOPICS
        self.log = log
        #: the last that this broker has heard of
        self.leader_epoch = -1
        self.leading = False
        #: whether the replica is here to stay, whatever its role
        self.hosted = True
        #: what leading several replicas takes; None for one that is alone, and for one that does not lead
        self.leadership: Leadership | None = None
        #: who fetches from here as a replica: an insertion-ordered set
        self.followers: dict[Follower, None] = {}
        #: insertion-ordered set: whoever waited first is served first
        self.waiters: dict[Waiter, None] = {}
        self.directory = directory
        self.flusher = flusher
        #: appended, but behind the high watermark until the disk has them
        self.hidden_bytes = 0
        #: appends that are with a worker; None if there are none
        self.pending: PendingAppends | None = None
        #: held by whoever makes sealed segments anew: compaction, or a repair of what was compacted
        self.rewriting = asyncio.Lock()
        #: whether what was appended last has to be synced before it is acknowledged (`flush.messages`)
        self.sync_due = False
        #: whether the flusher knows that bytes were written since it last planned a sync
        self.unsynced = False
        self.acknowledgements = acknowledgements
        self.reconfigure(log.config)

    def reconfigure(self, config: LogConfig) -> None:
        """Take over changed topic configs."""
        self.log.reconfigure(config)
        name = config.compression_type
        #: the codec that the topic insists on; None takes what producers send
        self.codec = None if name == "producer" else Codec.from_label(name)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        self.compression_level = None if self.codec is None else levels.get(self.codec)
        #: the topic's own wish: sync after so many seconds, or records; None leaves it to the broker
        self.flush_s = config.flush_ms / 1000 if config.flush_ms < FOREVER else None
        self._flush_records = config.flush_messages if config.flush_messages < FOREVER else None
        # What is planned may come too late for the new config: the next write tells the flusher again.
        self.unsynced = False
        if self.leadership is not None:
            self.leadership.reconfigure(config.min_insync_replicas)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def acks_wait(self) -> bool:
        """Whether an acknowledgement of the last append has to wait for a sync."""
        return self.flusher.acks_wait or self.sync_due

    def append(
        self,
        batches: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
    ) -> Appended:
        """Append what a client sent, or a coordinator decided; stamps offsets into `batches` in place."""
        if not self.leading:
            raise NotLeaderOrFollower
        if self.internal and origin is AppendOrigin.CLIENT:
            raise InvalidTopic(f"Cannot append to internal topic {self.topic}")
        flusher = self.flusher
        log = self.log
        if flusher.health.full is not None:
            log.check_room()
        size = len(batches)
        appended = log.append(batches, self.leader_epoch, origin, checked_by)
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
                if self.waiters:
                    self.tell_waiters(size)
        return appended

    @property
    def own_end(self) -> int:
        """Up to where this replica has its log: where acks wait for the disk, as far as that has it."""
        return self.log.recovery_point if self.flusher.acks_wait else self.log.end_offset

    def sync_rest(self) -> bool:
        """See to it that this replica will have all of its log; whether it has to be waited for."""
        if self.own_end >= self.log.end_offset:
            return False
        if not self.unsynced:
            self.flusher.wrote(self)
        return True

    def append_replicated(self, batches: memoryview, leader_epoch: int) -> int:
        """Append what the leader has in `leader_epoch`, as its follower; returns how many bytes."""
        log, flusher = self.log, self.flusher
        if flusher.health.full is not None:
            log.check_room()
        size = log.append_replicated(batches, leader_epoch)
        if size and not self.unsynced:
            flusher.wrote(self)
        return size

    def follow_watermarks(self, high_watermark: int, log_start_offset: int, size: int) -> None:
        """Take over what the leader says is committed, and kept; `size` bytes have come since it last did."""
        log = self.log
        before = log.high_watermark
        log.advance_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.delete_records(min(log_start_offset, log.high_watermark))
        if self.waiters and log.high_watermark > before:
            self.tell_waiters(max(size, 1))

    def expire(self, now_ms: int | None) -> bool:
        """Move the log start as retention says; followers hear of it with their next fetch response.

        With None for `now_ms` the time is not known, and no segment is too old.
        Returns true if segments can be removed (`Log.remove_expired`) once the log start has been saved.
        """
        expired = self.log.expire(now_ms, cached_only=True)
        if expired:
            for follower in self.followers:
                follower.moved()
        return expired

    def flushed(self, end_offset: int, size: int) -> None:
        """The disk confirmed everything below `end_offset`, `size` bytes of it hidden so far."""
        self.hidden_bytes -= size
        if not (self.flusher.acks_wait and self.leading):
            return
        if self.leadership is not None:
            self.leadership.became_durable(end_offset)
        elif end_offset > self.log.high_watermark:
            self.log.advance_high_watermark(end_offset)
            if self.waiters:
                # What was here before we led was not counted.
                self.tell_waiters(max(size, 1))

    def check_leader_epoch(self, current_leader_epoch: int, only_leader: bool = True) -> None:
        """Refuse a client whose idea of the leader is older or newer than ours (KIP-320)."""
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
        """What to raise for an error that reading the log's bytes has met."""
        return self.flusher.health.failed(error, f"cannot read {self.log.path}")

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """As the log's; it hears of an epoch with its first batch, and we already lead in it before."""
        return epoch_end(self.log, self.leader_epoch, epoch)

    def readable_end(self, committed: bool) -> int:
        """Where reading ends: the last stable offset for those who read committed data only."""
        log = self.log
        return log.last_stable_offset if committed else log.high_watermark

    # -- roles

    def lead(self, leader_epoch: int, leadership: Leadership | None) -> None:
        """Lead from now on, alone or with others."""
        self._end_leadership()
        self.leader_epoch = leader_epoch
        self.leading = True
        self.leadership = leadership
        if leadership is None:
            self.log.advance_high_watermark(self.own_end)
        else:
            leadership.begin()
        self.sync_rest()
        self._tell_all()

    def follow(self, leader_epoch: int) -> None:
        """Lead no more: somebody else does in `leader_epoch`, or nobody."""
        self.leader_epoch = leader_epoch
        self.leading = False
        self._end_leadership()
        self._tell_all()

    def step_down(self) -> None:
        """Somebody else leads, in an epoch that we have not heard of yet."""
        self.follow(self.leader_epoch)

    def retire(self) -> None:
        """The partition is no longer ours; whoever waits learns it by asking again."""
        self.hosted = False
        self.follow(self.leader_epoch)

    def _end_leadership(self) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            leadership.resign()

    def _tell_all(self) -> None:
        """A role has changed: whoever waits has to look again."""
        self.tell_waiters(1 << 62)
        for follower in list(self.followers):
            follower.grew(1 << 62)

    def tell_waiters(self, size: int) -> None:
        for waiter in list(self.waiters):
            waiter.more(size)
