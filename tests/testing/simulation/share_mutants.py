"""Brokers without one of the rules of share groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.broker.handlers import broker_appends
from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.broker.shares import reading
from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.model.errors import ApiError
from penstock.shares import acknowledgement, acquisition, partition, persisted
from penstock.shares.delay_log import Plan
from penstock.shares.delay_schedule import DelaySchedule
from penstock.shares.deletion_delay import DeletionDelay
from penstock.shares.in_flight import Run
from penstock.shares.partition import Expired, ShareLimits, SharePartition, Transition
from penstock.shares.persisted import NO_EPOCH, PersistedState
from penstock.shares.shard import PruneLog, ShareShard
from penstock.shares.states import TERMINAL, RecordState, StateBatch
from tests.testing.simulation.hunting import Mutant

__all__ = ["SHARE_MUTANTS"]

_KILLS: Final = ("kill", "kill_in_write", "power_loss", "partition")


def _nothing(*_: object) -> None:
    return None


# -- the leader

_persist, _load = SharePartitionHost.persist, SharePartition.load.__func__  # type: ignore[attr-defined]


def _answer_first(self: SharePartitionHost, transition: Transition, done: Any) -> None:
    done(None)
    _persist(self, transition, _nothing)


def _finish_gaps(
    cls: type[SharePartition], start_offset: int, state_epoch: int, batches: Iterable[StateBatch]
) -> SharePartition:
    filled: list[StateBatch] = []
    at = start_offset
    for batch in batches:
        if batch.first > at:
            filled.append(StateBatch(at, batch.first - 1, RecordState.ARCHIVED, 1))
        filled.append(batch)
        at = batch.last + 1
    loaded: SharePartition = _load(cls, start_offset, state_epoch, filled)
    return loaded


def _forget_counts(
    cls: type[SharePartition], start_offset: int, state_epoch: int, batches: Iterable[StateBatch]
) -> SharePartition:
    loaded: SharePartition = _load(
        cls, start_offset, state_epoch, [batch._replace(delivery_count=0) for batch in batches]
    )
    return loaded


def _begin_past_others(self: SharePartition, targets: Any) -> Transition:
    """The start offset passes records whose transitions may be rolled back, or that are still acquired."""
    runs = []
    for run, target, _ in targets:
        run.target = target
        if target in TERMINAL:
            self.complete += len(run)
        runs.append(run)
    start_offset = max((run.last + 1 for run in runs if run.target in TERMINAL), default=self.start_offset)
    return Transition(runs, self._update([run.batch() for run in runs], start_offset, 0))


def _never_archived(delivery_count: int, delivery_count_limit: int) -> RecordState:
    return RecordState.AVAILABLE


def _keep_locks(self: SharePartition, now_ms: int, limits: ShareLimits) -> Expired:
    self.locks.take_due(now_ms)
    return Expired(False)


def _lock_uncounted(self: SharePartition, run: Run, member: str, deadline_ms: int) -> None:
    self.available -= len(run)
    run.state = RecordState.ACQUIRED
    run.delivery_count = max(1, run.delivery_count)
    self.hold(run, member, deadline_ms)


def _acquire_behind_a_hole(
    share: SharePartition, request: Any, fetch_offset: int, batches: Any, limits: Any, now_ms: int
) -> Any:
    """New records are acquired from the batch after the first one."""
    if fetch_offset == share.next_offset and len(batches) > 1:
        batches = [batches[0]._replace(is_data=False), *batches[1:]]
    return _acquire(share, request, fetch_offset, batches, limits, now_ms)


_acquire = acquisition.acquire


def _at_any_epoch(self: SharePartitionHost) -> bool:
    """A host outlasts the term of its leader."""
    return self.partition.leading and self.error is None


def _may_be_acquired(self: Run) -> bool:
    """Others may acquire a record that a member has."""
    return self.state not in TERMINAL and self.target is None and not self.rests


def _check_without_owner(share: SharePartition, member: str, batch: Any, limits: Any) -> None:
    _check(share, share.runs.overlapping(batch.first, batch.last)[0].member, batch, limits)


_check = acknowledgement._check


# -- the share coordinator


def _read_unregistered(self: ShareShard, key: Any, leader_epoch: int) -> Any:
    """A new leader does not register its epoch."""
    return _read(self, key, NO_EPOCH)


_read = ShareShard.read


def _empty_snapshot(self: PersistedState, now_ms: int) -> PersistedState:
    return self._replace(snapshot_epoch=self.snapshot_epoch + 1, write_ms=now_ms, updates=0, batches=())


def _newest_first(
    batches: Iterable[StateBatch], updates: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Updates replace all batches, instead of those that they overlap."""
    return sorted(updates)


def _prune_all(self: ShareShard) -> None:
    self._ledger.after_commit(PruneLog(self._next_offset))


def _lost_start(self: PersistedState, *arguments: Any) -> PersistedState:
    return _updated(self, *arguments)._replace(start_offset=self.start_offset)


_updated = PersistedState.updated


# -- delay topics


def _no_plans(self: DelaySchedule) -> list[Plan]:
    return []


def _other_producer(self: DelaySchedule) -> list[Plan]:
    return [plan._replace(producer_id=plan.producer_id + 1000) for plan in _doubtful(self)]


def _due_early(self: DelaySchedule, now_ms: int, count_max: int) -> list[int]:
    return _due(self, now_ms + 1000, count_max)


_doubtful, _due = DelaySchedule.doubtful, DelaySchedule.due


def _produce_views(self: BrokerAppends, context: Any, request: Any) -> Any:
    """The batches are read from the receive buffer when the task begins."""
    return context.spawn(self._produce(context, request))


async def _append_for_others(self: BrokerAppends, partition: Any, batch: bytes) -> int:
    """A follower confirms a batch that is in its log."""
    try:
        return await self._append_checked(partition, batch)
    except ApiError:
        written = broker_appends._repeated(partition, batch)
        if written is None:
            raise
        return written.last_offset


def _delete_at_once(self: DeletionDelay, now_ms: int, end_offset: int) -> int:
    return end_offset


SHARE_MUTANTS: Final = (
    Mutant(
        guard="writes of replaced leaders are refused",
        changes=((ShareShard, "_check_leader", _nothing),),
        shared=True,
        directed_fault="share_leader_behind",
    ),
    Mutant(
        guard="new leaders register their epoch",
        changes=((ShareShard, "read", _read_unregistered),),
        shared=True,
        directed_fault="share_leader_behind",
    ),
    Mutant(
        guard="the state of a leader ends with its epoch",
        changes=((SharePartitionHost, "is_current", property(_at_any_epoch)),),
        shared=True,
        directed_fault="share_leader_returns",
    ),
    Mutant(
        guard="one member at a time has a record",
        changes=((Run, "is_available", property(_may_be_acquired)),),
        shared=True,
    ),
    Mutant(
        guard="only the owner acknowledges",
        changes=((acknowledgement, "_check", _check_without_owner),),
        shared=True,
    ),
    Mutant(
        guard="acknowledgements are persisted before they are answered",
        changes=((SharePartitionHost, "persist", _answer_first),),
        shared=True,
        directed_fault="share_write_unreplicated",
    ),
    Mutant(
        guard="gaps in the persisted state are delivered again",
        changes=((SharePartition, "load", classmethod(_finish_gaps)),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="delivery counts are persisted",
        changes=((SharePartition, "load", classmethod(_forget_counts)),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="the start offset passes finished records only",
        changes=((SharePartition, "begin", _begin_past_others),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="the delivery limit ends deliveries",
        changes=((partition, "released_state", _never_archived),),
        shared=True,
    ),
    Mutant(
        guard="locks expire",
        changes=((SharePartition, "release_expired", _keep_locks),),
        shared=True,
    ),
    Mutant(
        guard="each delivery counts",
        changes=((SharePartition, "lock", _lock_uncounted),),
        shared=True,
    ),
    Mutant(
        guard="only offsets without records are skipped",
        changes=((reading, "acquire", _acquire_behind_a_hole),),
        shared=True,
    ),
    Mutant(
        guard="snapshots have all states",
        changes=((PersistedState, "as_cold_snapshot", _empty_snapshot),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="updates keep other states",
        changes=((persisted, "combine", _newest_first),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="the log of states keeps the last snapshots",
        changes=((ShareShard, "prune", _prune_all),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="the start offset is persisted",
        changes=((PersistedState, "updated", _lost_start),),
        shared=True,
        allowed=_KILLS,
    ),
    Mutant(
        guard="plans without an end are repeated",
        changes=((DelaySchedule, "doubtful", _no_plans),),
        shared=True,
        directed_fault="delay_leader_killed",
    ),
    Mutant(
        guard="plans are repeated with their producer id",
        changes=((DelaySchedule, "doubtful", _other_producer),),
        shared=True,
        directed_fault="delay_leader_killed",
    ),
    Mutant(
        guard="batches of other brokers are copied",
        changes=((BrokerAppends, "produce", _produce_views),),
        shared=True,
        directed_fault="queue_kills",
    ),
    Mutant(
        guard="only the leader vouches for a batch",
        changes=((BrokerAppends, "_append_once", _append_for_others),),
        shared=True,
        brokers=5,
        directed_fault="delay_target_moved",
    ),
    Mutant(
        guard="moved messages stay for a while",
        changes=((DeletionDelay, "deletable", _delete_at_once),),
        shared=True,
        directed_fault="delay_replica_reset",
    ),
    Mutant(
        guard="delayed messages wait until they are due",
        changes=((DelaySchedule, "due", _due_early),),
        shared=True,
        allowed=_KILLS,
    ),
)
