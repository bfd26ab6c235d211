"""The share coordinator's shard: fencing, snapshots, pruning, and replay of its own log."""

from __future__ import annotations

import pytest

from penstock.coordination.outbox import bytes_of
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError
from penstock.model.ids import TopicId
from penstock.shares.settings import Environment, ShareCoordinatorSettings
from penstock.shares.shard import STATE_BATCHES_MAX, PruneLog, ShareShard, ShareStateKey
from penstock.shares.state_batches import combine
from penstock.shares.states import RecordState, StateBatch
from penstock.wire.apis.write_share_group_state import PartitionData
from penstock.wire.apis.write_share_group_state import StateBatch as WrittenBatch
from penstock.wire.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

TOPIC = TopicId(bytes(15) + b"\x09")
KEY = ShareStateKey("group", TOPIC, 0)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState


class Coordinator:
    """A shard, and the log that it writes."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        image = ClusterImage()
        image.apply(TopicRecord(name="orders", topic_id=TOPIC), 0)
        image.apply(PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1], leader=1), 1)
        settings = ShareCoordinatorSettings(updates_per_snapshot=updates_per_snapshot, cold_snapshot_ms=100)
        self.image = image
        self._env = Environment(settings, image)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[object] = []
        self.shard = ShareShard(self._env)
        self.now_ms = 1000
        self.shard.begin(self.now_ms, self.now_ms)

    def append(self) -> None:
        self.log += [bytes_of(record) for record in self.shard.outbox.records]
        self.effects += self.shard.outbox.effects
        self.shard.outbox.clear()
        self.shard.begin(self.now_ms, self.now_ms)

    def write(
        self,
        start: int,
        *batches: tuple[int, int, int, int],
        leader: int = 1,
        state: int = 1,
        complete: int = 0,
    ) -> None:
        data = PartitionData(
            partition=0,
            state_epoch=state,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=[
                WrittenBatch(first_offset=f, last_offset=n, delivery_state=s, delivery_count=c)
                for f, n, s, c in batches
            ],
        )
        self.shard.write(KEY, data)
        self.append()

    def read(self, leader: int = 1) -> tuple[int, list[tuple[int, int, int, int]]]:
        result = self.shard.read(KEY, leader)
        self.append()
        batches = [
            (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in result.state_batches
        ]
        return result.start_offset, batches

    def initialize(self, state_epoch: int = 1, start: int = 0) -> None:
        self.shard.initialize(KEY, state_epoch, start)
        self.append()

    def restarted(self, start: int = 0) -> Coordinator:
        """A new coordinator with the same log, from offset `start` on."""
        other = Coordinator()
        other.log = list(self.log)
        for offset, (key, value) in enumerate(self.log[start:], start):
            other.shard.replay(offset, -1, -1, key, value)
        return other


def refused(action: object, *args: object, **changes: object) -> str:
    with pytest.raises(ApiError) as caught:
        action(*args, **changes)  # type: ignore[operator]
    return caught.value.code.name


def test_fencing() -> None:
    coordinator = Coordinator()
    assert refused(coordinator.read) == "INVALID_REQUEST"
    assert refused(coordinator.write, 0) == "INVALID_REQUEST"
    coordinator.initialize(state_epoch=2)
    assert coordinator.read(leader=5) == (0, [])
    assert refused(coordinator.write, 0, leader=4, state=2) == "FENCED_LEADER_EPOCH"
    assert refused(coordinator.write, 0, leader=5, state=1) == "FENCED_STATE_EPOCH"
    assert refused(coordinator.read, leader=4) == "FENCED_LEADER_EPOCH"
    assert refused(coordinator.initialize, state_epoch=1) == "FENCED_STATE_EPOCH"
    other = ShareStateKey("group", TOPIC, 7)
    assert refused(coordinator.shard.initialize, other, 1, 0) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert refused(coordinator.restarted().read, leader=4) == "FENCED_LEADER_EPOCH"


def test_a_restart_reads_the_same_state() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    for offset in range(20):
        coordinator.write(offset // 2, (offset, offset, ACKNOWLEDGED if offset % 3 else AVAILABLE, 1))
        assert coordinator.restarted().read() == coordinator.read()


def test_snapshots_replace_the_records_before_them() -> None:
    coordinator = Coordinator(updates_per_snapshot=3)
    coordinator.initialize()
    for offset in range(9):
        coordinator.write(0, (offset, offset, ACKNOWLEDGED, 1))
    coordinator.shard.prune()
    coordinator.append()
    (effect,) = coordinator.effects
    assert isinstance(effect, PruneLog)
    assert 0 < effect.offset < len(coordinator.log)
    assert coordinator.restarted(effect.offset).read() == coordinator.read() == (0, [(0, 8, ACKNOWLEDGED, 1)])


def test_cold_share_partitions_get_a_snapshot() -> None:
    coordinator = Coordinator(updates_per_snapshot=100)
    coordinator.initialize()
    coordinator.write(4)
    before = len(coordinator.log)
    coordinator.now_ms += 50
    coordinator.append()
    coordinator.shard.snapshot_cold()
    assert not coordinator.shard.outbox.records
    coordinator.now_ms += 50
    coordinator.append()
    coordinator.shard.snapshot_cold()
    coordinator.append()
    assert len(coordinator.log) == before + 1
    assert coordinator.restarted(before).read() == (4, [])


def test_cold_share_partitions_with_many_state_batches_get_their_snapshots_in_turns() -> None:
    """The snapshots of all of them were one step of the event loop."""
    coordinator = Coordinator(updates_per_snapshot=100)
    keys = [ShareStateKey(f"group-{number}", TOPIC, 0) for number in range(5)]
    batches = [
        WrittenBatch(first_offset=2 * i, last_offset=2 * i, delivery_state=2 * (i % 2)) for i in range(600)
    ]
    for key in keys:
        coordinator.shard.initialize(key, 1, 0)
        data = PartitionData(partition=0, state_epoch=1, start_offset=0, state_batches=batches)
        coordinator.shard.write(key, data)
    coordinator.append()
    coordinator.now_ms += 100
    coordinator.append()
    written = []
    for _ in range(3):
        before, are_more = len(coordinator.log), coordinator.shard.snapshot_cold()
        coordinator.append()
        written.append((len(coordinator.log) - before, are_more))
    assert written == [(2, True), (2, True), (1, False)]


def test_deleted_state_is_gone() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.shard.topics_deleted({TOPIC})
    coordinator.append()
    assert coordinator.shard.summary(KEY).start_offset == -1
    assert refused(coordinator.restarted().read) == "INVALID_REQUEST"


def test_the_state_of_a_topic_that_was_deleted_during_a_load_does_not_stay() -> None:
    """A shard that is being loaded does not hear of the deletion. Its old snapshot would keep the log."""
    coordinator = Coordinator()
    coordinator.initialize()
    other = coordinator.restarted()
    other.image.apply(RemoveTopicRecord(topic_id=TOPIC), 2)
    other.shard.prune()
    other.append()
    assert list(other.shard.survey()) == []
    assert other.log[-1][1] is None, "a tombstone"
    assert other.effects == [PruneLog(2)]


def test_a_late_retry_takes_back_nothing() -> None:
    """An old release that arrives after the acknowledgement of the same delivery does not win."""
    accepted = [StateBatch(0, 9, ACKNOWLEDGED, 2)]
    assert combine(accepted, [StateBatch(5, 12, AVAILABLE, 2)], 0) == [
        StateBatch(0, 9, ACKNOWLEDGED, 2),
        StateBatch(10, 12, AVAILABLE, 2),
    ]
    assert combine(accepted, [StateBatch(3, 4, AVAILABLE, 3)], 2) == [
        StateBatch(2, 2, ACKNOWLEDGED, 2),
        StateBatch(3, 4, AVAILABLE, 3),
        StateBatch(5, 9, ACKNOWLEDGED, 2),
    ]


def test_the_start_offset_never_goes_back() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.write(10)
    coordinator.write(4)
    assert coordinator.read() == (10, [])
    coordinator.initialize(state_epoch=2, start=3)
    assert coordinator.read() == (3, [])


def test_a_repeated_initialization_keeps_the_state() -> None:
    """A request of the group coordinator may arrive a second time when records were acknowledged already."""
    coordinator = Coordinator()
    coordinator.initialize(start=-1)
    coordinator.write(7, (7, 8, ACKNOWLEDGED, 1))
    coordinator.initialize(start=-1)
    found = coordinator.shard.read(KEY, 1)
    assert (found.start_offset, len(found.state_batches)) == (7, 1)


def test_a_late_write_does_not_change_the_count_of_finished_records() -> None:
    """Its count includes records below the start offset, so the lag would be too low."""
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.write(20, (25, 25, ACKNOWLEDGED, 1), complete=1)
    coordinator.write(5, (12, 12, ACKNOWLEDGED, 1), complete=14)
    found = coordinator.shard.summary(KEY)
    assert (found.start_offset, found.delivery_complete_count) == (20, 1)


def test_two_writes_at_the_same_time_count_all_their_finished_records() -> None:
    """The second one does not know yet that the first one raises the start offset."""
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.write(5, complete=0)
    coordinator.write(0, (5, 9, ACKNOWLEDGED, 1), complete=10)
    found = coordinator.shard.summary(KEY)
    assert (found.start_offset, found.delivery_complete_count) == (5, 5)


def test_deletion_passes_finished_records_in_front_of_which_the_start_offset_has_stayed() -> None:
    """The start offset is behind after writes at the same time, and a leader may die before its next one."""
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.write(5, complete=0)
    coordinator.write(
        0, (5, 9, ACKNOWLEDGED, 1), (10, 10, ARCHIVED, 1), (12, 12, ACKNOWLEDGED, 1), complete=12
    )
    assert coordinator.shard.lowest_starts({(TOPIC, 0)}) == {(TOPIC, 0): 11}
    coordinator.write(5, (11, 11, AVAILABLE, 1), complete=7)
    assert coordinator.shard.lowest_starts({(TOPIC, 0)}) == {(TOPIC, 0): 11}


def test_a_share_partition_has_as_many_states_as_records_can_be_in_flight() -> None:
    where = Coordinator()
    where.shard.initialize(KEY, 1, 0)
    many = [(2 * i, 2 * i, AVAILABLE, 1) for i in range(STATE_BATCHES_MAX + 1)]
    where.write(0, *many)
    with pytest.raises(ApiError, match="in flight"):
        where.write(0, (1, 1, AVAILABLE, 1))
    # The records before the start offset are no longer in flight.
    where.write(STATE_BATCHES_MAX, (1, 1, AVAILABLE, 1))
    where.write(STATE_BATCHES_MAX, (STATE_BATCHES_MAX + 1, STATE_BATCHES_MAX + 1, AVAILABLE, 1))
