"""One replica on this broker: its log, its role, pending fetches, and the end of what readers may see.

A replica leads, follows, or does neither while there is no leader. `Replicas` assigns the role from the
metadata. Readers see records below the high watermark. With one replica, the high watermark is the log's end;
if acks wait for the disk (`penstock.flush=group`), it is the end of what the disk has confirmed. With several
replicas, the leader's `Leadership` moves it, and followers take it over from their leader.
"""

from __future__ import annotations

import asyncio

from penstock.broker.base.metrics import TopicStats
from penstock.broker.replica.closed_topics import check_open, is_closed, is_mirror
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.leadership import Follower, Leadership
from penstock.broker.replica.partition_sync import PartitionSync
from penstock.broker.replica.recompression import Recompression
from penstock.broker.replica.waiting_readers import A_LOT, WaitingReaders
from penstock.model.config.mirrored_topics import MirroredTopic
from penstock.model.errors import (
    BrokerError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    RemoteReadFailed,
    UnknownLeaderEpoch,
)
from penstock.model.ids import TopicId
from penstock.ports import FileRange
from penstock.replication.epochs import epoch_end
from penstock.replication.leader import LeaderState
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.guards import VerificationGuard
from penstock.storage.health import DAMAGED
from penstock.storage.log import Appended, AppendOrigin, Log
from penstock.storage.scan import CorruptLog
from penstock.storage.validation import Rules
from penstock.tiering.progress import Copied
from penstock.wire.messages import Skeleton

__all__ = ["Partition", "PendingAppends"]


class PendingAppends:
    """The tasks of deferred appends to a partition, and the lock that keeps them in order."""

    __slots__ = ("order", "tasks")

    def __init__(self) -> None:
        self.order = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()


class Partition:
    """One replica: its log, its role, and what readers and followers may see.

    Other packages use `topic`, `topic_id`, `index`, `directory`, `log`, its role (`leading`, `leader_epoch`,
    `leader_state`, `hosted`), the methods, and `readers`, which has the requests that wait for more. The rest
    belongs to this package, and to the few modules that `tests/broker/replica/test_partition.py` names:
    `leadership`, `followers`, and `sync`, which has what the disk has.
    """

    __slots__ = (
        "_is_closed",
        "_leader_high_watermark",
        "acknowledgements",
        "archived",
        "directory",
        "followers",
        "health",
        "hosted",
        "index",
        "leader_epoch",
        "leadership",
        "leading",
        "log",
        "pending",
        "readers",
        "recompression",
        "rewriting",
        "stats",
        "sync",
        "topic",
        "topic_id",
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
        self._is_closed = is_closed(topic, log.config)
        self.log = log
        self.stats = stats
        #: the latest leader epoch that this broker has applied
        self.leader_epoch = -1
        #: of the leader's last response, on a follower
        self._leader_high_watermark = 0
        self.leading = False
        #: false once the replica was removed from this broker
        self.hosted = True
        #: the state of a leader with followers; None for a single replica and for a follower
        self.leadership: Leadership | None = None
        #: the replicas that fetch from this one: an insertion-ordered set
        self.followers: dict[Follower, None] = {}
        self.readers = WaitingReaders(log)
        self.directory = directory
        #: of the data directory
        self.health = directory.health
        self.sync = PartitionSync(log, flusher, self._synced)
        #: appends that a worker prepares; None if there are none
        self.pending: PendingAppends | None = None
        #: what the archive has of this leader's log; None if that is not known in this leader epoch
        self.archived: Copied | None = None
        #: held while sealed segments are rewritten: by compaction, or by a repair of compacted segments
        self.rewriting = asyncio.Lock()
        self.acknowledgements = acknowledgements
        #: None keeps the codec of the producer
        self.recompression = Recompression.of(log.config)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply changed topic configs."""
        self.log.reconfigure(config)
        self.sync.reconfigure(config)
        self.recompression = Recompression.of(config)
        was_closed, self._is_closed = self._is_closed, is_closed(self.topic, config)
        if self.leadership is not None:
            self.leadership.reconfigure(config.min_insync_replicas)
        if self.leading and config.penstock_link:
            self._forget_foreign_producers(opened=was_closed and not self._is_closed)

    def _forget_foreign_producers(self, *, opened: bool) -> None:
        """Forget the producers of a promoted topic whose last batch a link has mirrored.

        Why: producers of this cluster may have the same ids. Their records would be taken for duplicates.
        """
        ends = MirroredTopic.parse(self.log.config.penstock_link).ends
        if self.index < len(ends):
            self.log.producers.forget_before(ends[self.index], without_batches=opened)

    @property
    def is_mirror(self) -> bool:
        """Whether a link mirrors the topic: only what the source has is appended."""
        return is_mirror(self.log.config)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_online(self) -> bool:
        """Returns true if this broker still hosts the replica, and its data directory is online."""
        return self.hosted and self.health.offline is None

    def append(
        self,
        batches: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append batches of a client or a coordinator as leader; writes offsets into `batches` in place."""
        if not self.leading or (self._is_closed and origin is AppendOrigin.CLIENT):
            self.check_client_append()
        log, sync = self.log, self.sync
        if self.health.full is not None:
            log.check_room()
        size = len(batches)
        appended = log.appender.append(batches, self.leader_epoch, origin, checked_by, guard)
        if not appended.duplicate:
            # Most appends follow another that has planned the sync: they do without the call.
            if not sync.unsynced or sync.flush_records is not None:
                sync.appended()
            if self.leadership is not None:
                self.leadership.appended(size)
            elif sync.flusher.acks_wait:
                sync.hidden_bytes += size
            else:
                log.advance_high_watermark(log.end_offset)
                if self.readers:
                    self.readers.wake(size)
        return appended

    def check_client_append(self) -> None:
        """Raise if the partition refuses every append of a client."""
        if not self.leading:
            raise NotLeaderOrFollower
        check_open(self.topic, self.log.config)

    def append_replicated(self, batches: memoryview, leader_epoch: int) -> int:
        """Append batches that were fetched from the leader of `leader_epoch`; returns the bytes appended."""
        if self.health.full is not None:
            self.log.check_room()
        size = self.log.appender.append_replicated(batches, leader_epoch)
        if size and not self.sync.unsynced:
            self.sync.appended()
        return size

    def follow_watermarks(self, high_watermark: int, log_start_offset: int, size: int) -> None:
        """Apply the leader's high watermark and log start; `size` bytes were appended since the last call."""
        log = self.log
        before = log.high_watermark
        self._leader_high_watermark = high_watermark
        log.advance_high_watermark(high_watermark)
        if log_start_offset > log.explained_start:
            log.delete_records(min(log_start_offset, log.high_watermark))
        if self.readers and log.high_watermark > before:
            self.readers.wake(max(size, 1))

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

    def _synced(self, end_offset: int, size: int) -> None:
        """Commit on a leader what the disk has: all below `end_offset`, `size` bytes of which were hidden."""
        if not self.leading:
            return
        if self.leadership is not None:
            self.leadership.became_durable(end_offset)
        elif end_offset > self.log.high_watermark:
            self.log.advance_high_watermark(end_offset)
            # Bytes from before this leadership were not counted.
            self.readers.wake(max(size, 1))

    def check_leader_epoch(self, current_leader_epoch: int, only_leader: bool = True) -> None:
        """Raise if a request's leader epoch is not this replica's (KIP-320)."""
        if only_leader and not self.leading:
            raise NotLeaderOrFollower
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch
        raise UnknownLeaderEpoch

    def read_failed(self, error: OSError, found: FileRange | None = None) -> BrokerError:
        """The error to raise after a failed read of the log's bytes, of `found` if that is known."""
        if found is not None and not found.file.path.startswith(self.log.path):
            # Bytes of the archive, in a cache: the data directory has not failed.
            return RemoteReadFailed(f"cannot read {found.file.path}: {error}")
        if error.errno == DAMAGED:
            return CorruptLog(f"{error.filename}: {error.strerror}")
        return self.health.failed(error, f"cannot read {self.log.path}")

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
        return 0 if self.leading else max(0, self._leader_high_watermark - self.log.end_offset)

    # -- roles

    @property
    def leader_state(self) -> LeaderState | None:
        """What a leader knows of its followers; None for a single replica, and for a follower."""
        return None if self.leadership is None else self.leadership.state

    def lead(self, leader_epoch: int, leadership: Leadership | None) -> None:
        """Become leader. `leadership` is None for a single replica."""
        self._end_leadership()
        self.leader_epoch = leader_epoch
        self.leading = True
        self.archived = None
        self.leadership = leadership
        if leadership is None:
            self.log.advance_high_watermark(self.sync.end_offset)
        else:
            leadership.begin()
        self.sync.sync_rest()
        if self.log.config.penstock_link:
            self._forget_foreign_producers(opened=False)
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
        self.sync.retire()
        self.follow(self.leader_epoch)

    def _end_leadership(self) -> None:
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            leadership.resign()

    def _wake_all(self) -> None:
        """The role has changed: waiting requests and followers have to look at the partition again."""
        self.readers.wake_all()
        for follower in list(self.followers):
            follower.grew(A_LOT)
