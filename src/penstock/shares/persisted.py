"""The persisted state of a share partition as a value: what the snapshot and its updates say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.model.errors import ProtocolError
from penstock.shares.records import ShareSnapshotValue, ShareUpdateValue, StateBatchValue
from penstock.shares.state_batches import combine, joined
from penstock.shares.states import STATES, TERMINAL, StateBatch

__all__ = ["NO_EPOCH", "UNINITIALIZED", "PersistedState", "batch_values", "initial_state", "state_batches"]

NO_EPOCH: Final = -1
#: The start offset of a share partition that no leader has read from yet. The leader sets it by the config
#: share.auto.offset.reset.
UNINITIALIZED: Final = -1


class PersistedState(NamedTuple):
    """The state of one share partition."""

    snapshot_epoch: int
    #: rises when an administrator resets the offsets
    state_epoch: int
    #: of the partition leader that has read the state last
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    create_ms: int
    write_ms: int
    #: records since the last snapshot
    updates: int = 0

    @classmethod
    def of_snapshot(cls, value: ShareSnapshotValue) -> PersistedState:
        return cls(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            joined(state_batches(value.state_batches)),
            value.create_timestamp,
            value.write_timestamp,
        )

    @property
    def first_unfinished(self) -> int:
        """The first offset that is not finished.

        The start offset is behind it after writes that were on their way at the same time, until the leader
        writes again.
        """
        offset = self.start_offset
        for batch in self.batches:
            if batch.first > offset or batch.state not in TERMINAL:
                break
            offset = batch.last + 1
        return offset

    def updated(
        self, leader_epoch: int, start_offset: int, complete: int, batches: Iterable[StateBatch]
    ) -> PersistedState:
        """The state after one more write. The start offset never goes back within a state epoch.

        A write with a lower start offset was on its way beside the one that raised the start offset. Its
        count has the finished records from its own start offset on: those below ours no longer count.
        """
        start = max(self.start_offset, start_offset)
        if start_offset < start:
            complete = max(self.delivery_complete_count, complete - (start - start_offset))
        return self._replace(
            leader_epoch=self.leader_epoch if leader_epoch == NO_EPOCH else leader_epoch,
            start_offset=start,
            delivery_complete_count=complete,
            batches=combine(self.batches, batches, start),
            updates=self.updates + 1,
        )

    def with_update(self, value: ShareUpdateValue) -> PersistedState:
        batches = state_batches(value.state_batches)
        return self.updated(value.leader_epoch, value.start_offset, value.delivery_complete_count, batches)

    def as_snapshot(self, now_ms: int) -> PersistedState:
        """A new snapshot because of many updates."""
        return self.as_cold_snapshot(now_ms)._replace(create_ms=now_ms)

    def as_cold_snapshot(self, now_ms: int) -> PersistedState:
        """A new snapshot because the last one is old. As in Kafka, its creation time stays."""
        return self._replace(snapshot_epoch=self.snapshot_epoch + 1, write_ms=now_ms, updates=0)

    def snapshot_value(self) -> ShareSnapshotValue:
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.create_ms,
            write_timestamp=self.write_ms,
            state_batches=batch_values(self.batches),
        )


def initial_state(state_epoch: int, start_offset: int, snapshot_epoch: int, now_ms: int) -> PersistedState:
    complete = UNINITIALIZED if start_offset == UNINITIALIZED else 0
    return PersistedState(snapshot_epoch, state_epoch, 0, start_offset, complete, (), now_ms, now_ms)


def state_batches(values: Iterable[StateBatchValue]) -> list[StateBatch]:
    try:
        return [
            StateBatch(v.first_offset, v.last_offset, STATES[v.delivery_state], v.delivery_count)
            for v in values
        ]
    except KeyError as e:
        raise ProtocolError(f"a state batch with the unknown state {e}") from e


def batch_values(batches: Iterable[StateBatch]) -> list[StateBatchValue]:
    return [
        StateBatchValue(
            first_offset=b.first, last_offset=b.last, delivery_state=b.state, delivery_count=b.delivery_count
        )
        for b in batches
    ]
