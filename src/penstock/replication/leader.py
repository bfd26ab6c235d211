"""The leader's side of a replicated partition, for one leader epoch: in-sync replicas and high watermark.

Invariants:
- `high_watermark` never moves back, and moves only while the committed ISR has at least min ISR members, or
  to what an earlier leader had committed (`recover_high_watermark`).
- It never passes the end offset of any member of the *maximal* ISR: the committed one and the replica whose
  addition is in flight. A replica being removed counts until the metadata has it removed. If a proposal was
  sent twice and one copy was refused, the controller may still accept the other copy. Its replica counts
  until the partition epoch moves, or until no copy can be in flight any more.
- At most one proposal is in flight, and its outcome counts only while it is the one in flight.
- A follower joins only if it fetched in this leader epoch, and since it last left the ISR, reached the high
  watermark and the epoch's start, is neither fenced nor shutting down, and fetches as the incarnation that is
  registered.

A partition with one replica needs none of this: its high watermark is its own end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from penstock.model.errors import ErrorCode, NotLeaderOrFollower, UnknownLeaderEpoch
from penstock.replication.progress import FollowerProgress

__all__ = ["IsrMember", "IsrProposal", "LeaderState", "Reaction", "RegisteredBroker"]

#: stands for "whatever is registered" in a proposal and in a fetch that names no broker epoch
ANY_BROKER_EPOCH: Final = -1


class RegisteredBroker(Protocol):
    """A broker in the metadata."""

    @property
    def epoch(self) -> int: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...


class IsrMember(NamedTuple):
    broker: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """A proposal for AlterPartition: a compare-and-set on the two epochs."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


class Reaction(Enum):
    """The reaction to a refused proposal."""

    #: send it again, after a pause
    RETRY = auto()
    #: it was not and will not be applied: the committed ISR holds, and another proposal may follow
    WITHDRAWN = auto()
    #: the proposal may have been applied: it stays until newer metadata arrives
    AWAIT_METADATA = auto()
    #: as AWAIT_METADATA, and this broker no longer leads: it has to stop serving as if it did
    STEP_DOWN = auto()


_REACTIONS: Final = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: Reaction.WITHDRAWN,
    ErrorCode.INELIGIBLE_REPLICA: Reaction.WITHDRAWN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.AWAIT_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: Reaction.AWAIT_METADATA,
    ErrorCode.INVALID_REQUEST: Reaction.AWAIT_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.STEP_DOWN,
    ErrorCode.NEW_LEADER_ELECTED: Reaction.STEP_DOWN,
}


class LeaderState:
    """One leadership of one partition. A new leader epoch gets a new object.

    `local_end` is the end of the leader's own log, or of its durable part if acks wait for the disk.
    `brokers` returns a broker's registration, or None. Calls that may change the ISR return the proposal to
    send.

    Why it has more than 25 methods: ISR, proposals and high watermark depend on each other. Splitting them
    would spread the invariants above over several objects.
    """

    __slots__ = (
        "_brokers",
        "_doubted",
        "_joining",
        "_max_lag_ms",
        "_own_broker_epoch",
        "_recovered",
        "_resent",
        "broker",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch",
        "local_end",
        "min_isr",
        "partition_epoch",
        "proposal",
    )

    def __init__(
        self,
        *,
        broker: int,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        min_isr: int,
        end_offset: int,
        local_end: int,
        high_watermark: int,
        brokers: Callable[[int], RegisteredBroker | None],
        max_lag_ms: int,
        now_ms: int,
    ) -> None:
        self.broker = broker
        self._own_broker_epoch = broker_epoch
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = frozenset(isr)
        self.min_isr = min_isr
        #: where this epoch's records start: what earlier leaders committed may lie anywhere below
        self.epoch_start_offset = end_offset
        self.local_end = local_end
        self.high_watermark = high_watermark
        self.followers = {
            replica: FollowerProgress(replica in self.isr, now_ms)
            for replica in replicas
            if replica != broker
        }
        #: the proposal that the controller has not responded to
        self.proposal: IsrProposal | None = None
        self._joining: int | None = None
        self._recovered = False
        self._resent = False
        #: replicas that a copy of a refused proposal may still add, and until when
        self._doubted: dict[int, int] = {}
        self._brokers = brokers
        self._max_lag_ms = max_lag_ms
        self._advance(now_ms)

    # -- events

    def local_end_advanced(self, end_offset: int, now_ms: int) -> None:
        """The leader's own log has grown (or more of it is durable)."""
        self.local_end = end_offset
        self._advance(now_ms)

    def follower_fetched(
        self, replica: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> IsrProposal | None:
        """A follower fetches from `fetch_offset`: it has everything below.

        Not for a fetch that was answered with a diverging epoch: that log is not a prefix of ours.
        Raises for a replica that is not one of the partition's, and for an incarnation that is gone.
        """
        progress = self.followers.get(replica)
        if progress is None:
            # The follower may have applied its assignment before us: it has to retry.
            raise UnknownLeaderEpoch(f"broker {replica} is not a replica in leader epoch {self.leader_epoch}")
        self._check_incarnation(replica, broker_epoch)
        before = progress.end_offset
        progress.fetched(broker_epoch, fetch_offset, log_start_offset, self.local_end, now_ms)
        proposal = None
        if replica not in self.isr and self.proposal is None and self._may_join(replica, progress):
            self._joining = replica
            proposal = self._propose(self.isr | {replica})
        if fetch_offset != before:
            self._advance(now_ms)
        return proposal

    def min_isr_changed(self, min_isr: int, now_ms: int) -> None:
        """The topic's minimum has changed: a smaller one may commit waiting records."""
        self.min_isr = min_isr
        self._advance(now_ms)

    def tick(self, now_ms: int) -> IsrProposal | None:
        """Time has passed: followers that have not been caught up for too long leave the ISR."""
        if self._doubted:
            self._doubted = {replica: until for replica, until in self._doubted.items() if now_ms < until}
            self._advance(now_ms)
        if self.proposal is not None:
            return None
        lagging = {replica for replica in self.isr if self._lags(replica, now_ms)}
        return self._propose(self.isr - lagging) if lagging else None

    def accepted(
        self, proposal: IsrProposal, partition_epoch: int, leader_epoch: int, isr: Iterable[int], now_ms: int
    ) -> None:
        """The controller agreed. A late answer, to a proposal overtaken by metadata, changes nothing.

        A replica that leaves the ISR counts until the metadata has the change. Why: a larger minimum may
        precede it in the log, and make the replica an eligible leader (KIP-966) without the records committed
        meanwhile.
        """
        if self.proposal is not proposal or leader_epoch != self.leader_epoch:
            return
        in_sync = frozenset(isr)
        if partition_epoch >= self.partition_epoch and self.isr <= in_sync:
            self._commit(partition_epoch, in_sync, now_ms)

    def sent_again(self, proposal: IsrProposal) -> None:
        """Note a second copy of a proposal: the controller may apply one after it answered the other."""
        if self.proposal is proposal:
            self._resent = True

    def rejected(self, proposal: IsrProposal, error: ErrorCode, now_ms: int) -> Reaction:
        """The controller refused, or did not answer; only WITHDRAWN lets another proposal follow."""
        if self.proposal is not proposal:
            return Reaction.WITHDRAWN
        reaction = _REACTIONS.get(error, Reaction.RETRY)
        if reaction is Reaction.RETRY:
            self._resent = True
        elif reaction is Reaction.WITHDRAWN:
            if self._resent and self._joining is not None:
                self._doubted[self._joining] = now_ms + self._max_lag_ms
            self.proposal = self._joining = None
        return reaction

    def metadata_changed(
        self, partition_epoch: int, replicas: Iterable[int], isr: Iterable[int], now_ms: int
    ) -> None:
        """The metadata log has a newer state of this partition, in the same leader epoch."""
        if partition_epoch <= self.partition_epoch:
            return
        in_sync = frozenset(isr)
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress(replica in in_sync, now_ms)
            for replica in replicas
            if replica != self.broker
        }
        self._commit(partition_epoch, in_sync, now_ms)

    # -- offsets for clients

    def enough_replicas(self) -> bool:
        """Before an append with acks=all: whether the committed ISR can keep its promise."""
        return len(self.isr) >= self.min_isr or len(self.isr) >= self._effective_min_isr()

    def acknowledgement(self, end_offset: int) -> ErrorCode | None:
        """The answer to an append with acks=all that ends at `end_offset`; None while it has to wait."""
        if self.high_watermark < end_offset:
            return None
        if len(self.isr) < self.min_isr and len(self.maximal_isr()) < self._effective_min_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def latest_offset_known(self) -> bool:
        """Whether ListOffsets may name the end: what earlier leaders committed is at or below our start."""
        return self._recovered or self.high_watermark >= self.epoch_start_offset

    def needs_high_watermark_recovery(self, now_ms: int) -> bool:
        """Returns true if too few replicas are in sync to learn from fetches what earlier leaders committed.

        False while a follower fetches: a follower that has just started may be the former leader, and reveals
        all that it had committed only once it is in sync.
        """
        return (
            not self.latest_offset_known()
            and not self.enough_replicas()
            and not any(each.fetches(now_ms, self._max_lag_ms) for each in self.followers.values())
        )

    def recover_high_watermark(self, high_watermark: int) -> None:
        """Take over the highest high watermark that all other replicas have reported in this epoch."""
        self._recovered = True
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.epoch_start_offset))

    def low_watermark(self, log_start_offset: int) -> int:
        """Below this no live replica keeps records: what DeleteRecords waits for."""
        return min(
            [log_start_offset]
            + [p.log_start_offset for replica, p in self.followers.items() if self._is_alive(replica)]
        )

    # -- rules

    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR, and replicas that a pending proposal may have added already."""
        if self._doubted:
            return self.isr.union(self._doubted, () if self._joining is None else (self._joining,))
        return self.isr if self._joining is None else self.isr | {self._joining}

    def _effective_min_isr(self) -> int:
        return min(self.min_isr, len(self.followers) + 1)

    def _advance(self, now_ms: int) -> None:
        if len(self.isr) < self.min_isr and not self.enough_replicas():
            return
        maximal = self.isr if self._joining is None and not self._doubted else self.maximal_isr()
        committed = self.local_end
        for replica, progress in self.followers.items():
            if progress.end_offset < committed and (
                replica in maximal or self._is_about_to_join(replica, progress, now_ms)
            ):
                committed = progress.end_offset
        if committed > self.high_watermark:
            self.high_watermark = committed

    def _is_about_to_join(self, replica: int, progress: FollowerProgress, now_ms: int) -> bool:
        """Whether to wait for a replica that is as good as in sync; it could never catch a moving target."""
        return progress.is_caught_up(self.local_end, now_ms, self._max_lag_ms) and self._is_eligible(
            replica, progress
        )

    def _may_join(self, replica: int, progress: FollowerProgress) -> bool:
        return self._has_reached(progress) and self._is_eligible(replica, progress)

    def _has_reached(self, progress: FollowerProgress) -> bool:
        """A new leader's high watermark may be behind what was committed, its epoch's start never is."""
        return progress.end_offset >= self.high_watermark and progress.end_offset >= self.epoch_start_offset

    def _is_eligible(self, replica: int, progress: FollowerProgress) -> bool:
        registered = self._brokers(replica)
        return (
            registered is not None
            and progress.has_fetched_since
            and not registered.fenced
            and not registered.in_controlled_shutdown
            and progress.broker_epoch in (ANY_BROKER_EPOCH, registered.epoch)
        )

    def is_leaving(self, replica: int) -> bool:
        """Returns true if a replica's broker has announced its shutdown."""
        registered = self._brokers(replica)
        return registered is not None and registered.in_controlled_shutdown

    def _check_incarnation(self, replica: int, broker_epoch: int) -> None:
        """A fetch of an incarnation that is gone says nothing about what the present one has (KIP-903)."""
        registered = self._brokers(replica)
        if registered is not None and ANY_BROKER_EPOCH != broker_epoch < registered.epoch:
            raise NotLeaderOrFollower(
                f"broker {replica} fetches in epoch {broker_epoch}, it is registered in {registered.epoch}"
            )

    def _is_alive(self, replica: int) -> bool:
        registered = self._brokers(replica)
        return registered is not None and not registered.fenced

    def _lags(self, replica: int, now_ms: int) -> bool:
        if replica == self.broker:
            return False
        progress = self.followers.get(replica)
        return progress is None or not progress.is_caught_up(self.local_end, now_ms, self._max_lag_ms)

    def _propose(self, isr: frozenset[int]) -> IsrProposal:
        members = tuple(IsrMember(replica, self._broker_epoch(replica)) for replica in sorted(isr))
        self._resent = False
        self.proposal = IsrProposal(self.leader_epoch, self.partition_epoch, members)
        return self.proposal

    def _broker_epoch(self, replica: int) -> int:
        """The incarnation whose log we know; one that has not fetched is in sync by the controller's word."""
        if replica == self.broker:
            return self._own_broker_epoch
        progress = self.followers.get(replica)
        if progress is None or progress.broker_epoch is None:
            return ANY_BROKER_EPOCH
        return progress.broker_epoch

    def _commit(self, partition_epoch: int, isr: Iterable[int], now_ms: int) -> None:
        if partition_epoch > self.partition_epoch:
            self._doubted = {}
        self.partition_epoch = partition_epoch
        before, self.isr = self.isr, frozenset(isr)
        for replica in before - self.isr:
            if replica in self.followers:
                self.followers[replica].left_isr(now_ms)
        self.proposal = self._joining = None
        self._advance(now_ms)
