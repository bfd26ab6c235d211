"""The state of a share partition on the leader of its partition.

The start offset is the first offset that is not finished: no record below it is delivered again. Offsets
from the start offset to before the next offset are in flight. Offsets from the next offset on have not been
delivered by this leader.

A state change that has to survive the leader is a transition: its runs keep their old state, with a target,
until the share coordinator has persisted it (`commit`) or refused it (`roll_back`). An expired acquisition
lock changes the state at once, as in Kafka: the persisted state is only less advanced then. If the group has
dead letters, records whose last delivery has failed are a transition instead: their dead letters are written
before the records are archived.

Owned by: one host in the broker. Pure: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.config.settings import GROUP_CONFIG
from penstock.shares.in_flight import NO_MEMBER, InFlightRuns, Run
from penstock.shares.locks import Lock, LockDeadlines
from penstock.shares.states import TERMINAL, DeadLetterCause, RecordState, StateBatch, released_state

__all__ = [
    "Expired",
    "ShareLimits",
    "SharePartition",
    "StateUpdate",
    "Target",
    "Transition",
    "Undeliverable",
    "release_target",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The configs of a share group that its partitions apply."""

    delivery_count: int = GROUP_CONFIG.integer("share.delivery.count.limit")
    lock_ms: int = GROUP_CONFIG.integer("share.record.lock.duration.ms")
    #: the most records in flight of a partition
    in_flight: int = GROUP_CONFIG.integer("share.partition.max.record.locks")
    renewal_enabled: bool = GROUP_CONFIG.flag("share.renew.acknowledge.enable")
    #: true if undeliverable records become dead letters
    has_dead_letters: bool = GROUP_CONFIG.is_set("errors.deadletterqueue.topic.name")
    #: the wait before the second delivery, which doubles with each delivery, and its maximum
    backoff_ms: int = GROUP_CONFIG.integer("penstock.share.retry.backoff.ms")
    backoff_max_ms: int = GROUP_CONFIG.integer("penstock.share.retry.backoff.max.ms")

    def backoff_after(self, delivery_count: int) -> int:
        """The wait after a delivery that failed."""
        return min(self.backoff_max_ms, self.backoff_ms << max(0, delivery_count - 1))


class StateUpdate(NamedTuple):
    """A change of the state, as it is persisted."""

    start_offset: int
    #: offsets from the start offset on that are finished
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Target(NamedTuple):
    """The state that an acquired run is to have, and the cause if it is undeliverable."""

    run: Run
    state: RecordState
    cause: DeadLetterCause | None = None


class Undeliverable(NamedTuple):
    """Records that are to become dead letters."""

    first: int
    last: int
    delivery_count: int
    cause: DeadLetterCause


class Transition(NamedTuple):
    """Runs whose targets are being persisted."""

    runs: Sequence[Run]
    update: StateUpdate
    undeliverable: Sequence[Undeliverable] = ()


class Expired(NamedTuple):
    """The changes by the end of acquisition locks and retry backoffs."""

    #: true if records may be available now
    is_changed: bool
    #: of records that were released
    update: StateUpdate | None = None
    #: of records that are to become dead letters
    transition: Transition | None = None


def release_target(run: Run, limits: ShareLimits) -> Target:
    """The target of a released run: it is archived when its last delivery has failed."""
    state = released_state(run.delivery_count, limits.delivery_count)
    return Target(run, state, DeadLetterCause.LIMIT if state is RecordState.ARCHIVED else None)


class SharePartition:
    """One partition as one share group consumes it.

    Invariants: `runs` covers the offsets from `start_offset` to before `next_offset`. The first run is not
    finished. `available` and `complete` count the offsets of the available and of the finished runs. A run
    whose target is a terminal state counts as finished.
    """

    def __init__(self, start_offset: int, state_epoch: int = 0) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.state_epoch = state_epoch
        self.runs = InFlightRuns()
        self.locks = LockDeadlines()
        self.available = 0
        self.complete = 0
        #: no offset below it is available
        self._search_from = start_offset

    @classmethod
    def load(cls, start_offset: int, state_epoch: int, batches: Iterable[StateBatch]) -> SharePartition:
        """A partition with persisted state. Offsets between the batches are available: they were acquired."""
        loaded = cls(start_offset, state_epoch)
        for batch in batches:
            if batch.first > loaded.next_offset:
                loaded.add(Run(loaded.next_offset, batch.first - 1, RecordState.AVAILABLE, 0))
            first = max(batch.first, loaded.next_offset)
            if first <= batch.last:
                loaded.add(Run(first, batch.last, batch.state, batch.delivery_count))
        loaded.advance_start()
        return loaded

    # -- offsets

    @property
    def in_flight(self) -> int:
        return self.next_offset - self.start_offset

    def next_fetch_offset(self, limits: ShareLimits) -> int | None:
        """The first offset to deliver next; None if as many records are in flight as the limits allow."""
        if self.available:
            for run in self.runs.from_offset(self._search_from):
                if run.is_available:
                    self._search_from = run.first
                    return run.first
        return self.next_offset if self.in_flight < limits.in_flight else None

    def end_of(self, offset: int, count: int) -> int:
        """The offset behind the first `count` records from `offset` on that are to be delivered."""
        if self.available:
            for run in self.runs.from_offset(offset):
                if run.is_available:
                    first = max(offset, run.first)
                    if run.last - first + 1 >= count:
                        return first + count
                    count -= run.last - first + 1
        return max(offset, self.next_offset) + count

    def add(self, run: Run) -> None:
        """Add a run behind all others."""
        self.runs.append(run)
        self.next_offset = run.last + 1
        if run.is_available:
            self._count_available(run)
        elif run.state in TERMINAL:
            self.complete += len(run)

    def advance_start(self) -> None:
        """Move the start offset to the first run that is not finished."""
        finished = 0
        for run in self.runs:
            if run.target is not None or run.state not in TERMINAL:
                break
            finished += 1
            self.complete -= len(run)
            self.start_offset = run.last + 1
        self.runs.drop_first(finished)

    def move_start(self, log_start_offset: int) -> bool:
        """Finish the offsets below the log start offset. Returns true if there were any."""
        if log_start_offset <= self.start_offset:
            return False
        dropped = 0
        for run in self.runs:
            if run.first >= log_start_offset:
                break
            self._uncount(run, min(run.last, log_start_offset - 1) - run.first + 1)
            if run.last >= log_start_offset:
                break
            dropped += 1
        self.runs.drop_first(dropped)
        if log_start_offset < self.next_offset and next(iter(self.runs)).first < log_start_offset:
            self.runs.cut_first(log_start_offset)
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        self.advance_start()
        return True

    def _count_available(self, run: Run) -> None:
        self.available += len(run)
        self._search_from = min(self._search_from, run.first)

    def _uncount(self, run: Run, removed: int) -> None:
        if run.is_available:
            self.available -= removed
        elif run.state in TERMINAL or run.target in TERMINAL:
            self.complete -= removed

    # -- acquisition locks

    def lock(self, run: Run, member: str, deadline_ms: int) -> None:
        """Acquire an available run: its delivery count rises."""
        assert run.is_available, run
        self.available -= len(run)
        run.state = RecordState.ACQUIRED
        run.delivery_count += 1
        self.hold(run, member, deadline_ms)

    def hold(self, run: Run, member: str, deadline_ms: int) -> None:
        """Set or renew the acquisition lock of an acquired run, or the retry backoff of a released one."""
        run.member, run.deadline_ms = member, deadline_ms
        self.locks.add(Lock(deadline_ms, run.first, run.last))
        if self.locks.is_oversized(len(self.runs)):
            self.locks.replace(
                Lock(r.deadline_ms, r.first, r.last)
                for r in self.runs
                if r.rests or r.state is RecordState.ACQUIRED
            )

    def archive(self, run: Run) -> None:
        """Finish an available run without a delivery: its offsets have no record for the group."""
        assert run.is_available, run
        self.available -= len(run)
        run.state = RecordState.ARCHIVED
        self.complete += len(run)

    def release_expired(self, now_ms: int, limits: ShareLimits) -> Expired:
        """Release the runs whose acquisition locks have expired, and end retry backoffs."""
        released: list[Run] = []
        undeliverable: dict[int, Target] = {}
        is_changed = False
        for lock in self.locks.take_due(now_ms):
            for run in self.runs.overlapping(lock.first, lock.last):
                if run.target is not None or run.deadline_ms > now_ms:
                    continue
                if run.rests:
                    run.rests = False
                    self._count_available(run)
                    is_changed = True
                elif run.state is RecordState.ACQUIRED:
                    target = release_target(run, limits)
                    if limits.has_dead_letters and target.cause is not None:
                        undeliverable[run.first] = target
                    else:
                        self._release(run, now_ms, limits)
                        released.append(run)
        transition = self.begin(undeliverable.values()) if undeliverable else None
        if not released:
            return Expired(is_changed or transition is not None, None, transition)
        batches = [run.batch() for run in released]
        self.advance_start()
        return Expired(True, self._update(batches, self.start_offset, self.complete), transition)

    def _release(self, run: Run, now_ms: int, limits: ShareLimits) -> None:
        run.state = released_state(run.delivery_count, limits.delivery_count)
        run.member = NO_MEMBER
        if run.is_available:
            self._make_available(run, now_ms, limits)
        else:
            self.complete += len(run)

    def _make_available(self, run: Run, now_ms: int, limits: ShareLimits) -> None:
        """Have a run delivered again, after the retry backoff."""
        backoff_ms = limits.backoff_after(run.delivery_count)
        if backoff_ms:
            run.rests = True
            self.hold(run, NO_MEMBER, now_ms + backoff_ms)
        else:
            self._count_available(run)

    # -- transitions

    def begin(self, targets: Iterable[Target]) -> Transition:
        """Give acquired runs their targets."""
        runs: list[Run] = []
        undeliverable: list[Undeliverable] = []
        for run, target, cause in targets:
            assert run.state is RecordState.ACQUIRED, run
            assert run.target is None, run
            run.target = target
            if target in TERMINAL:
                self.complete += len(run)
            if cause is not None:
                undeliverable.append(Undeliverable(run.first, run.last, run.delivery_count, cause))
            runs.append(run)
        start_offset, complete = self.start_offset, self.complete
        changing = set(map(id, runs))
        for run in self.runs:
            # The target of another transition may be rolled back.
            state = run.target if id(run) in changing else None if run.target is not None else run.state
            if state not in TERMINAL:
                break
            start_offset = run.last + 1
            complete -= len(run)
        update = self._update([run.batch() for run in runs], start_offset, complete)
        return Transition(runs, update, undeliverable)

    def begin_release(self, member: str, limits: ShareLimits) -> Transition | None:
        """Release all that a member has acquired, when its session ends. None if there is nothing."""
        owned = [
            release_target(run, limits)
            for run in self.runs
            if run.state is RecordState.ACQUIRED and run.member == member and run.target is None
        ]
        return self.begin(owned) if owned else None

    def commit(self, transition: Transition, now_ms: int, limits: ShareLimits) -> None:
        """The transition is persisted."""
        for run in transition.runs:
            assert run.target is not None, run
            run.state, run.target = run.target, None
            run.member = NO_MEMBER
            if run.is_available and self._holds(run):
                self._make_available(run, now_ms, limits)
        self.advance_start()

    def roll_back(self, transition: Transition, now_ms: int, limits: ShareLimits) -> None:
        """The transition is not persisted: the runs stay acquired, unless their locks have expired.

        A run whose last delivery has failed so, and that has no dead letter yet, has its lock expire again.
        """
        has_letter = {each.last for each in transition.undeliverable}
        for run in transition.runs:
            if not self._holds(run):
                continue
            if run.target in TERMINAL:
                self.complete -= len(run)
            run.target = None
            if run.deadline_ms > now_ms:
                continue
            is_last = release_target(run, limits).cause is not None
            if limits.has_dead_letters and is_last and run.last not in has_letter:
                self.hold(run, run.member, run.deadline_ms)
            else:
                self._release(run, now_ms, limits)
        self.advance_start()

    def _holds(self, run: Run) -> bool:
        """Returns false if the log start offset has passed the run."""
        return run.last >= self.start_offset

    def _update(self, batches: Iterable[StateBatch], start_offset: int, complete: int) -> StateUpdate:
        return StateUpdate(start_offset, complete, [b for b in batches if b.last >= start_offset])
