"""The leadership of a partition with several replicas: carries out the decisions of `LeaderState`.

A decision reaches the log, pending acks=all requests, readers, and the controller. A pending request takes no
task: it is an entry of a heap, ordered by the offset that has to be committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.partition_sync import PartitionSync
from penstock.broker.replica.waiting_readers import A_LOT, WaitingReaders
from penstock.model.errors import ApiError, ErrorCode, NotEnoughReplicas
from penstock.model.ids import TopicId
from penstock.ports import Clock
from penstock.replication.leader import IsrProposal, LeaderState, Reaction
from penstock.storage.log import Log

__all__ = ["Follower", "Leadership", "LedPartition", "Propose"]

log = get_logger("leadership")
#: sends a proposal to the controller
Propose: TypeAlias = Callable[["Leadership", IsrProposal], None]


class Follower(Protocol):
    """A replica on another broker that fetches from this one."""

    def grew(self, size: int) -> None:
        """The follower can fetch `size` bytes more, or has to look at the partition again."""
        ...

    def moved(self) -> None:
        """The high watermark has moved, or the log's start."""
        ...


class LedPartition(Protocol):
    """A partition as its leadership uses it."""

    @property
    def topic_id(self) -> TopicId: ...
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def sync(self) -> PartitionSync: ...
    @property
    def followers(self) -> Collection[Follower]: ...
    @property
    def readers(self) -> WaitingReaders: ...
    @property
    def leadership(self) -> Leadership | None: ...

    def step_down(self) -> None: ...


class Leadership:
    """One leadership of one partition: from `Partition.lead` until the partition stops leading."""

    __slots__ = (
        "_acks",
        "_clock",
        "_deletions",
        "_has_ended",
        "_hidden_bytes",
        "_metrics",
        "_order",
        "_propose",
        "partition",
        "state",
    )

    def __init__(
        self, partition: LedPartition, state: LeaderState, clock: Clock, metrics: Metrics, propose: Propose
    ) -> None:
        self.partition = partition
        self.state = state
        self._clock = clock
        self._metrics = metrics
        self._propose = propose
        #: appended in this leadership, and behind the high watermark
        self._hidden_bytes = 0
        #: (end offset, order of arrival, callback of its commit)
        self._acks: list[tuple[int, int, Callable[[ErrorCode], None]]] = []
        self._order = count()
        #: (log start, future that is done when all live replicas have it)
        self._deletions: list[tuple[int, asyncio.Future[bool]]] = []
        self._has_ended = False

    def begin(self) -> None:
        """The partition leads; alone in sync it may commit at once."""
        self._commit()

    def resign(self) -> None:
        """The partition stops leading: this broker cannot know whether pending appends get committed."""
        self._has_ended = True
        while self._acks:
            heappop(self._acks)[2](ErrorCode.NOT_LEADER_OR_FOLLOWER)
        deletions, self._deletions = self._deletions, []
        for _, done in deletions:
            if not done.done():
                done.set_result(False)

    def reconfigure(self, min_isr: int) -> None:
        if min_isr != self.state.min_isr:
            self.state.min_isr_changed(min_isr, self._now_ms())
            self._commit()

    # -- the log

    def appended(self, size: int) -> None:
        """The log has grown by `size` bytes: followers can fetch them."""
        partition = self.partition
        self._hidden_bytes += size
        if not partition.sync.flusher.acks_wait:
            self.state.local_end_advanced(partition.log.end_offset, self._now_ms())
            self._commit()
        for follower in partition.followers:
            follower.grew(size)

    def became_durable(self, end_offset: int) -> None:
        """The disk has everything below `end_offset`: with acks that wait for it, this counts for commits."""
        self.state.local_end_advanced(end_offset, self._now_ms())
        self._commit()

    # -- followers

    def fetched(
        self, replica: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower has everything below `fetch_offset`, as of `now_ms`. Raises as `LeaderState` does."""
        proposal = self.state.follower_fetched(replica, broker_epoch, fetch_offset, log_start_offset, now_ms)
        if proposal is not None:
            self._propose(self, proposal)
        self._commit()
        if self._deletions:
            self._check_deletions()

    @property
    def low_watermark(self) -> int:
        """Below this no live replica keeps records."""
        return self.state.low_watermark(self.partition.log.log_start_offset)

    def deleted(self) -> asyncio.Future[bool]:
        """The log start has moved: true once it has on all live replicas, false if the leadership ends."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._deletions.append((self.partition.log.explained_start, done))
        for follower in self.partition.followers:
            follower.grew(A_LOT)
        self._check_deletions()
        return done

    def _check_deletions(self) -> None:
        low_watermark, waiting = self.low_watermark, []
        for offset, done in self._deletions:
            if done.done():
                continue
            if offset <= low_watermark:
                done.set_result(True)
            else:
                waiting.append((offset, done))
        self._deletions = waiting

    # -- in sync

    def tick(self, allowance_ms: int) -> None:
        """Time has passed; `allowance_ms` of it do not count against followers."""
        proposal = self.state.tick(self._now_ms() - allowance_ms)
        if proposal is not None:
            self._propose(self, proposal)
        self._commit()

    def metadata_changed(self, partition_epoch: int, replicas: Iterable[int], isr: Iterable[int]) -> None:
        before = self.state.isr
        self.state.metadata_changed(partition_epoch, replicas, isr, self._now_ms())
        self._isr_changed(before)

    def accepted(
        self, proposal: IsrProposal, partition_epoch: int, leader_epoch: int, isr: Iterable[int]
    ) -> None:
        before = self.state.isr
        self.state.accepted(proposal, partition_epoch, leader_epoch, isr, self._now_ms())
        self._isr_changed(before)

    def _isr_changed(self, before: frozenset[int]) -> None:
        """Log and count a change, if there is one: response and metadata may both report the same change."""
        after = self.state.isr
        if after != before:
            self._metrics.isr_shrinks += bool(before - after)
            self._metrics.isr_shrinks_unplanned += not all(map(self.state.is_leaving, before - after))
            self._metrics.isr_expands += bool(after - before)
            log.info("isr_changed", partition=self.partition.name, before=sorted(before), isr=sorted(after))
        self._commit()

    @property
    def needs_high_watermark_recovery(self) -> bool:
        """Returns true if the other replicas have to be queried for what earlier leaders committed."""
        return self.state.needs_high_watermark_recovery(self._now_ms())

    def recover_high_watermark(self, high_watermark: int) -> None:
        self.state.recover_high_watermark(high_watermark)
        self._commit()

    def rejected(self, proposal: IsrProposal, error: ErrorCode) -> Reaction:
        reaction = self.state.rejected(proposal, error, self._now_ms())
        if reaction is Reaction.STEP_DOWN and self.partition.leadership is self:
            self.partition.step_down()
        return reaction

    # -- commits

    def check_enough_replicas(self) -> None:
        """Before an append with acks=all: raise NotEnoughReplicas if it could not be acknowledged."""
        if not self.state.enough_replicas():
            raise NotEnoughReplicas(
                f"{len(self.state.isr)} replicas are in sync, min.insync.replicas is {self.state.min_isr}"
            )

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when everything below `end_offset` is committed, or when the leadership ends.

        For acks=all: the code is NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR is too small by then.
        """
        code = self.state.acknowledgement(end_offset)
        if code is not None:
            callback(code)
        elif self._has_ended:
            # It ended while the append waited for the disk: nothing would call back.
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            heappush(self._acks, (end_offset, next(self._order), callback))

    async def committed(self, end_offset: int) -> None:
        """Return when `when_committed` calls back; raises ApiError for its code."""
        committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.when_committed(end_offset, lambda code: None if committed.done() else committed.set_result(code))
        code = await committed
        if code is not ErrorCode.NONE:
            raise ApiError(code)

    def _commit(self) -> None:
        """Advance the log's high watermark, wake readers and followers, and complete pending acks."""
        log, committed = self.partition.log, self.state.high_watermark
        before = log.high_watermark
        if committed > before:
            log.advance_high_watermark(committed)
            self._wake_readers(before, committed)
            for follower in self.partition.followers:
                follower.moved()
        acks = self._acks
        while acks and acks[0][0] <= committed:
            end_offset, _, callback = heappop(acks)
            code = self.state.acknowledgement(end_offset)
            assert code is not None, "it is below the high watermark"
            callback(code)

    def _wake_readers(self, before: int, committed: int) -> None:
        # The size of a committed part is estimated: readers wait for roughly this number of bytes.
        hidden, behind = self._hidden_bytes, self.partition.log.end_offset - before
        size = hidden if committed - before >= behind else hidden * (committed - before) // behind
        self._hidden_bytes -= size
        if self.partition.readers:
            self.partition.readers.wake(max(size, 1))

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
