"""Hosts one share partition on the leader: loads its state, persists changes, and wakes waiting fetches.

A host belongs to one term of the leader. It is discarded when the broker no longer leads the partition, when
the share coordinator fences it, and when the group has no session left on this broker.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.share_persister import SharePersister
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.dead_letters import DeadLetters
from penstock.broker.shares.group_settings import ShareGroupSettings, SharesConfig
from penstock.broker.shares.start_offset import reset_offset
from penstock.model.errors import ApiError, ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.ports import Clock, Workers
from penstock.shares.partition import ShareLimits, SharePartition, StateUpdate, Transition
from penstock.shares.persisted import UNINITIALIZED
from penstock.shares.shard import ShareStateKey
from penstock.shares.states import RecordState, StateBatch
from penstock.shares.stats import ShareStats

__all__ = ["HostEnvironment", "SharePartitionHost", "WaitingShareFetch"]

log = get_logger("shares")
#: the error of a request by the error of the share coordinator
_PERSISTER_ERRORS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_SERVER_ERROR,
}
#: errors of the share coordinator that end a host
_FENCING: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }
)


class WaitingShareFetch(Protocol):
    """A fetch that waits for records of share partitions."""

    def attempt(self) -> None:
        """Acquire records, and answer if there are any."""
        ...


class HostEnvironment:
    """The parts of a broker that all hosts use."""

    __slots__ = ("clock", "config", "dead_letters", "discard", "persister", "workers")

    def __init__(
        self,
        clock: Clock,
        workers: Workers,
        persister: SharePersister,
        config: SharesConfig,
        dead_letters: DeadLetters,
        discard: Callable[[SharePartitionHost], None],
    ) -> None:
        """`discard` removes a host that has ended, or is no longer needed."""
        self.clock = clock
        self.workers = workers
        self.persister = persister
        self.config = config
        self.dead_letters = dead_letters
        self.discard = discard

    def now_ms(self) -> int:
        """The time of acquisition locks: of a clock that never goes back."""
        return int(self.clock.monotonic() * 1000)


class SharePartitionHost:
    """One share partition in one term of its leader.

    Why it has more than 25 methods: acquisition, acknowledgement and persistence share the state of one share
    partition, and each method is one step of them.
    """

    def __init__(
        self, key: ShareStateKey, partition: Partition, env: HostEnvironment, stats: ShareStats
    ) -> None:
        self.key = key
        self.partition = partition
        self.stats = stats
        self._env = env
        self.leader_epoch = partition.leader_epoch
        #: None until the state is loaded
        self.share: SharePartition | None = None
        #: the error of a load that failed, or that ended the host
        self.error: ErrorCode | None = None
        #: fetches that wait for records, in the order in which they came
        self._waiting: dict[WaitingShareFetch, None] = {}
        self._writes = 0
        #: the highest start offset that the share coordinator has
        self._persisted_start = UNINITIALIZED
        #: true if the last write of a start offset alone has failed
        self._start_refused = False
        self._wake_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        #: the first offset that is not delivered yet because of the delivery delay, and when it will be
        self._delayed: tuple[int, int] | None = None
        self._delay_timer: asyncio.TimerHandle | None = None
        env.persister.spawn(self._load())

    @property
    def settings(self) -> ShareGroupSettings:
        return self._env.config.of(self.key.group_id)

    @property
    def limits(self) -> ShareLimits:
        return self.settings.limits

    @property
    def is_current(self) -> bool:
        """Returns true while the broker leads the partition in the term of the host."""
        partition = self.partition
        return partition.leading and partition.leader_epoch == self.leader_epoch and self.error is None

    @property
    def is_idle(self) -> bool:
        """Returns true if nothing is lost with the host: no write is under way and no fetch waits."""
        return not self._writes and not self._waiting

    # -- load and end

    async def _load(self) -> None:
        try:
            self.share = await self._loaded()
        except ApiError as e:
            log.warning("share_partition_not_loaded", partition=self._name, error=str(e))
            self.end(_PERSISTER_ERRORS.get(e.code, e.code))
        except PenstockError as e:
            log.error("share_partition_not_loaded", partition=self._name, error=str(e))
            self.end(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self.wake()

    async def _loaded(self) -> SharePartition:
        state = await self._env.persister.read(self.key, self.leader_epoch)
        start_offset = state.start_offset
        if start_offset == UNINITIALIZED:
            now_ms = self._env.clock.now_ms()
            reset = self.settings.offset_reset
            start_offset = await reset_offset(self.partition, reset, now_ms, self._env.workers)
            # Persisted before the first delivery: the next leader must not choose another offset.
            first = StateUpdate(start_offset, 0, ())
            write = self._env.persister.write(self.key, self.leader_epoch, state.state_epoch, first)
            error = await awaited(write)
            if error is not None:
                raise error
        if not self.is_current:
            raise NotLeaderOrFollower
        batches = [
            StateBatch(b.first_offset, b.last_offset, RecordState(b.delivery_state), b.delivery_count)
            for b in state.state_batches
        ]
        self._persisted_start = start_offset
        share = SharePartition.load(start_offset, state.state_epoch, batches)
        share.move_start(self.partition.log.log_start_offset)
        return share

    @property
    def _name(self) -> str:
        return f"{self.key.group_id}:{self.partition.name}"

    def end(self, error: ErrorCode) -> None:
        """Discard the state. Fetches that wait find the error, or a new host."""
        self.error = error
        for timer in (self._timer, self._delay_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._delay_timer = None
        self._env.discard(self)
        self._unsubscribe()
        for fetch in list(self._waiting):
            fetch.attempt()

    # -- waiting fetches

    def wait(self, fetch: WaitingShareFetch) -> None:
        if not self._waiting:
            self._subscribe()
        self._waiting[fetch] = None

    def stop_waiting(self, fetch: WaitingShareFetch) -> None:
        self._waiting.pop(fetch, None)
        if not self._waiting:
            self._unsubscribe()

    def _subscribe(self) -> None:
        self.partition.readers.join(self, self.settings.is_committed)

    def _unsubscribe(self) -> None:
        self.partition.readers.leave(self)

    def more(self, size: int) -> None:
        """The partition has grown, or its role has changed."""
        self.wake()

    def wake(self) -> None:
        """Have waiting fetches try again, once all that is done in this turn of the event loop is done."""
        if self._waiting and not self._wake_due:
            self._wake_due = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._wake_due = False
        if not self._has_news():
            return
        for fetch in list(self._waiting):
            if fetch in self._waiting:
                fetch.attempt()
                if not self._has_news():
                    break

    def _has_news(self) -> bool:
        """Returns true if a waiting fetch would find records or an error."""
        return self.has_records or not self.is_current

    @property
    def has_records(self) -> bool:
        """Returns true if a member could acquire records now."""
        if self.share is None:
            return False
        offset = self.share.next_fetch_offset(self.limits)
        if offset is None or offset >= self.partition.readable_end(self.settings.is_committed):
            return False
        return self._delayed is None or offset < self._delayed[0]

    # -- the delivery delay of the topic

    @property
    def delay_ms(self) -> int:
        """The age that batches must have to be delivered."""
        return self._env.config.topic(self.partition.topic).delay_ms

    def wall_ms(self) -> int:
        """The time that timestamps of batches are compared with."""
        return self._env.clock.now_ms()

    def delay_until(self, offset: int, due_ms: int) -> None:
        """Wake waiting fetches at `due_ms` by the wall clock: until then `offset` is too young."""
        if self._delayed == (offset, due_ms):
            return
        self._delayed = offset, due_ms
        if self._delay_timer is not None:
            self._delay_timer.cancel()
        delay_s = max(0, due_ms - self._env.clock.now_ms()) / 1000
        self._delay_timer = asyncio.get_running_loop().call_later(delay_s, self._delay_over)

    def _delay_over(self) -> None:
        self._delayed = self._delay_timer = None
        self.wake()

    # -- changes of the state

    def persist(self, transition: Transition, done: Callable[[ApiError | None], None]) -> None:
        """Persist a transition, and commit it or roll it back. `done` gets the error of a failed one."""
        share = self.share
        assert share is not None

        def written(error: ApiError | None) -> None:
            now_ms = self._env.now_ms()
            if error is None:
                share.commit(transition, now_ms, self.limits)
            else:
                share.roll_back(transition, now_ms, self.limits)
            self._written(error)
            self.watch_locks()
            done(
                None
                if error is None
                else ApiError(_PERSISTER_ERRORS.get(error.code, error.code), error.message)
            )

        self._writes += 1
        if transition.undeliverable and self.limits.has_dead_letters:
            # Before the records are archived: after a failover the next leader delivers them again.
            letters = self._env.dead_letters.write(
                self.key.group_id, self.partition, transition.undeliverable
            )
            letters.then(lambda _: self._write(share, transition.update, written))
        else:
            self._write(share, transition.update, written)

    def _write(
        self, share: SharePartition, update: StateUpdate, written: Callable[[ApiError | None], None]
    ) -> None:
        def answered(error: ApiError | None) -> None:
            if error is None:
                self._persisted_start = max(self._persisted_start, update.start_offset)
            written(error)

        self._env.persister.write(self.key, self.leader_epoch, share.state_epoch, update).then(answered)

    def persist_start(self) -> bool:
        """Persist the start offset if it is ahead of the persisted one. Returns true if a write has begun.

        It is ahead if no acknowledgement has moved it, and after transitions that were under way at the same
        time: none of them passes the records of another one, which may be rolled back.
        """
        share = self.share
        if share is None or self._writes or share.start_offset <= self._persisted_start:
            return False

        def written(error: ApiError | None) -> None:
            self._start_refused = error is not None
            self._written(error)

        self._writes += 1
        self._write(share, StateUpdate(share.start_offset, share.complete, ()), written)
        return True

    def settle(self) -> bool:
        """Persist the start offset before the host is discarded. Returns true if a write has begun.

        Why: no fetch will do it, and deletion after consumption depends on it. A failed write is not
        repeated.
        """
        return self.is_current and not self._start_refused and self.persist_start()

    def _written(self, error: ApiError | None) -> None:
        self._writes -= 1
        if error is not None and error.code in _FENCING and self.error is None:
            log.info("share_partition_fenced", partition=self._name, error=str(error))
            self.end(_PERSISTER_ERRORS.get(error.code, error.code))
            return
        if self.error is None:
            self.wake()
            if self.is_idle:
                self._env.discard(self)

    def release(self, member: str) -> None:
        """Release all that a member has acquired, because its session has ended."""
        if self.share is None or not self.is_current:
            return
        transition = self.share.begin_release(member, self.limits)
        if transition is not None:
            self.persist(transition, lambda _: None)

    # -- acquisition locks

    def watch_locks(self) -> None:
        """Set the timer for the next acquisition lock that expires."""
        if self.share is None:
            return
        next_ms = self.share.locks.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_s = max(0, next_ms - self._env.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._locks_due)

    def _locks_due(self) -> None:
        self._timer = None
        if self.share is None:
            return
        if not self.is_current:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        expired = self.share.release_expired(self._env.now_ms(), self.limits)
        self.stats.count_expired(expired)
        if expired.update is not None:
            # As in Kafka, the records are available at once. A failed write loses only their counts.
            self._writes += 1
            self._write(self.share, expired.update, self._written)
        if expired.transition is not None:
            self.persist(expired.transition, lambda _: None)
        if expired.is_changed:
            self.wake()
        self.watch_locks()
