"""The share coordinator's shard: the share partitions of one partition of `__share_group_state`.

A method per request, for one share partition. It returns the partition's result. Records are in `outbox`.

The log is not compacted. Instead a snapshot replaces all records before it. From time to time the shard
requests the removal of the records below the oldest snapshot that is still needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from penstock.coordination.ledger import Ledger
from penstock.coordination.ledger_shard import LedgerShard
from penstock.coordination.timers import TimerKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.shares.persisted import (
    NO_EPOCH,
    UNINITIALIZED,
    PersistedState,
    batch_values,
    initial_state,
)
from penstock.shares.records import (
    ShareSnapshotKey,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_record,
    encode_record,
)
from penstock.shares.settings import Environment
from penstock.shares.states import STATES, RecordState, StateBatch
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import read_share_group_state_summary as summary
from penstock.wire.apis import write_share_group_state as write
from penstock.wire.schema import Struct

__all__ = ["STATE_BATCHES_MAX", "PruneLog", "ShareShard", "ShareStateKey"]

_COLD: Final = "cold-snapshots"
_PRUNE: Final = "prune"
#: The most records in flight that a config allows. A snapshot has the states of all of them.
STATE_BATCHES_MAX: Final = 10_000
#: state batches of the snapshots that are written at once
_SNAPSHOT_BATCHES: Final = 1000


class ShareStateKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int


class PruneLog(NamedTuple):
    """An effect: no record below `offset` is needed any more."""

    offset: int


class ShareShard(LedgerShard[Ledger]):
    """Share partitions of one partition of `__share_group_state`."""

    def __init__(self, env: Environment) -> None:
        super().__init__(Ledger(encode_record, self._apply))
        self._env = env
        self._states: dict[ShareStateKey, PersistedState] = {}
        #: a lower bound of the offset of the last snapshot of each share partition
        self._snapshot_offsets: dict[ShareStateKey, int] = {}
        #: A lower bound of the offset of the next record. Exact unless the log was empty when it was loaded.
        self._next_offset = 0
        self._pruned_offset = 0

    # -- for the runtime

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        record = decode_record(key, value)
        if record is not None:
            self._apply(*record)
            self._appended(record[0], offset)
        self._next_offset = offset + 1

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """The log has no transactions."""

    def on_loaded(self) -> None:
        settings = self._env.settings
        self.timers.schedule((_COLD,), settings.cold_snapshot_ms)
        self.timers.schedule((_PRUNE,), settings.prune_ms)

    def timer_expired(self, key: TimerKey) -> None:
        if key[0] == _COLD:
            are_more = self.snapshot_cold()
            self.timers.schedule(key, 1 if are_more else self._env.settings.cold_snapshot_ms)
        elif key[0] == _PRUNE:
            self.prune()
            self.timers.schedule(key, self._env.settings.prune_ms)

    # -- requests

    def initialize(self, key: ShareStateKey, state_epoch: int, start_offset: int) -> None:
        """Begin the state of a share partition anew, for a higher state epoch."""
        self._check_partition(key)
        before = self._states.get(key)
        if before is not None and state_epoch != NO_EPOCH and before.state_epoch > state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        if before is not None and before.state_epoch == state_epoch:
            # A request that arrives twice must not discard the states that were written in between.
            return
        snapshot_epoch = 0 if before is None else before.snapshot_epoch + 1
        self._write_snapshot(
            key, initial_state(state_epoch, start_offset, snapshot_epoch, self._ledger.now_ms)
        )

    def read(self, key: ShareStateKey, leader_epoch: int) -> read.PartitionResult:
        """The state, for the leader of `leader_epoch`. Writes of earlier leaders are refused from now on."""
        state = self._state(key)
        self._check_leader(state, leader_epoch)
        result = read.PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                read.StateBatch(
                    first_offset=b.first,
                    last_offset=b.last,
                    delivery_state=b.state,
                    delivery_count=b.delivery_count,
                )
                for b in state.batches
            ],
        )
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            self._write(key, state, leader_epoch, state.start_offset, state.delivery_complete_count, [])
        return result

    def write(self, key: ShareStateKey, data: write.PartitionData) -> None:
        state = self._state(key)
        self._check_leader(state, data.leader_epoch)
        if data.state_epoch != NO_EPOCH and state.state_epoch > data.state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        if len(state.batches) > STATE_BATCHES_MAX and data.start_offset <= state.start_offset:
            raise _invalid(f"A share partition can't have more than {STATE_BATCHES_MAX} records in flight.")
        batches = [
            StateBatch(b.first_offset, b.last_offset, _state_of(b.delivery_state), b.delivery_count)
            for b in data.state_batches
        ]
        self._write(key, state, state.leader_epoch, data.start_offset, data.delivery_complete_count, batches)

    def summary(self, key: ShareStateKey) -> summary.PartitionResult:
        self._check_partition(key)
        state = self._states.get(key)
        if state is None:
            return summary.PartitionResult(
                partition=key.partition, start_offset=UNINITIALIZED, delivery_complete_count=UNINITIALIZED
            )
        return summary.PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    def lowest_starts(self, partitions: Collection[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
        """The lowest offset that a group has not finished in each partition; UNINITIALIZED is the lowest."""
        found: dict[tuple[bytes, int], int] = {}
        for key, state in self._states.items():
            name = key.topic_id, key.partition
            if name in partitions:
                first = state.first_unfinished
                found[name] = min(first, found.get(name, first))
        return found

    def delete(self, key: ShareStateKey) -> None:
        if key.partition < 0:
            raise _invalid("The partition id cannot be negative.")
        if key in self._states:
            self._append(_snapshot_key(key), None)

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        for key in [key for key in self._states if key.topic_id in topic_ids]:
            self.delete(key)

    def survey(self) -> Iterator[tuple[ShareStateKey, PersistedState]]:
        """The share partitions for the metrics. They may change between two of them."""
        for key in list(self._states):
            state = self._states.get(key)
            if state is not None:
                yield key, state

    # -- snapshots and pruning

    def snapshot_cold(self) -> bool:
        """Write snapshots of share partitions without a recent one, so that their old records can go.

        Returns true if more of them are due: snapshots of many state batches take long.
        """
        written = 0
        now_ms, oldest_ms = self._ledger.now_ms, self._ledger.now_ms - self._env.settings.cold_snapshot_ms
        for key, state in list(self._states.items()):
            if state.updates and state.write_ms <= oldest_ms:
                if written >= _SNAPSHOT_BATCHES:
                    return True
                self._write_snapshot(key, state.as_cold_snapshot(now_ms))
                written += len(state.batches) + 1
        return False

    def prune(self) -> None:
        """Request the removal of the records below the oldest snapshot.

        Topics that were deleted while this shard had no coordinator would keep their snapshots for ever. The
        coordinator that created a state knew the topic from the same metadata log, so a topic that is not in
        this broker's image is deleted.
        """
        known = self._env.image.topics_by_id
        self.topics_deleted({key.topic_id for key in self._states if TopicId(key.topic_id) not in known})
        needed = min(self._snapshot_offsets.values(), default=self._next_offset)
        if needed > self._pruned_offset:
            self._pruned_offset = needed
            self._ledger.after_commit(PruneLog(needed))

    # -- records

    def _write(
        self,
        key: ShareStateKey,
        state: PersistedState,
        leader_epoch: int,
        start_offset: int,
        complete: int,
        batches: list[StateBatch],
    ) -> None:
        if state.updates >= self._env.settings.updates_per_snapshot:
            after = state.updated(leader_epoch, start_offset, complete, batches)
            self._write_snapshot(key, after.as_snapshot(self._ledger.now_ms))
            return
        update = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            state_batches=batch_values(batches),
        )
        self._append(
            ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), update
        )

    def _write_snapshot(self, key: ShareStateKey, state: PersistedState) -> None:
        self._append(_snapshot_key(key), state.snapshot_value())

    def _append(self, key: ShareSnapshotKey | ShareUpdateKey, value: Struct | None) -> None:
        self._ledger.write(key, value)
        self._appended(key, self._next_offset)
        self._next_offset += 1

    def _appended(self, key: object, offset: int) -> None:
        """A record is in the log at `offset` or above."""
        if not isinstance(key, ShareSnapshotKey):
            return
        name = _key_of(key)
        if name in self._states:
            self._snapshot_offsets[name] = offset
        else:
            self._snapshot_offsets.pop(name, None)

    def _apply(self, key: Any, value: Any) -> None:
        name = _key_of(key)
        if isinstance(key, ShareUpdateKey):
            if value is not None:
                before = self._states.get(name)
                self._states[name] = (before or initial_state(0, value.start_offset, 0, 0)).with_update(value)
        elif value is None:
            self._states.pop(name, None)
        else:
            self._states[name] = PersistedState.of_snapshot(value)

    # -- checks

    def _state(self, key: ShareStateKey) -> PersistedState:
        state = self._states.get(key)
        if state is None and key.partition >= 0:
            raise _invalid("The share partition is not initialized.")
        self._check_partition(key)
        assert state is not None
        return state

    def _check_partition(self, key: ShareStateKey) -> None:
        if key.partition < 0:
            raise _invalid("The partition id cannot be negative.")
        topic = self._env.image.topics_by_id.get(TopicId(key.topic_id))
        if topic is None or key.partition >= len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _check_leader(self, state: PersistedState, leader_epoch: int) -> None:
        if leader_epoch != NO_EPOCH and state.leader_epoch > leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)


def _key_of(key: ShareSnapshotKey | ShareUpdateKey | Any) -> ShareStateKey:
    return ShareStateKey(key.group_id, key.topic_id, key.partition)


def _snapshot_key(key: ShareStateKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _state_of(number: int) -> RecordState:
    state = STATES.get(number)
    if state is None:
        raise _invalid(f"The delivery state {number} is unknown.")
    return state


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
