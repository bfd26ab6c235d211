"""Offsets in transactions: pending until the marker, stable fetches, order by position (KIP-447)."""

from __future__ import annotations

import pytest

from penstock.coordination.outbox import EndMarker, TransactionalRecords
from penstock.groups.ledger import Environment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.records.record import Record, build_batch
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


class Shard:
    """A group shard and its log, item by item."""

    def __init__(self) -> None:
        self.env = Environment(GroupSettings(offsets_retention_ms=1000), ClusterImage(), lambda: "uuid")
        self.log: list[object] = []
        self.shard = GroupShard(self.env)
        self.shard.begin(1_000_000, 0)

    def _took(self) -> None:
        for record in self.shard.outbox.records:
            self.log.append(record if isinstance(record, tuple) else record())
        self.shard.outbox.clear()

    def commit(self, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        self.shard.commit(request, 9)
        self._took()

    def commit_in_transaction(
        self, producer_id: int, offset: int, size_max: int = 1 << 20, **member: object
    ) -> None:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            group_id="g",
            producer_id=producer_id,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            **member,  # type: ignore[arg-type]
        )
        self.shard.commit_transactional(request, {}, None, size_max)
        self._took()

    def end(self, producer_id: int, committed: bool) -> None:
        self.log.append(EndMarker(producer_id, 0, 0, committed))
        self.shard.replay_end_transaction_marker(producer_id, 0, committed)

    def fetch(self, stable: bool = False) -> int | str:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        (partition,) = self.shard.fetch(group, stable).topics[0].partitions
        return ErrorCode(partition.error_code).name if partition.error_code else partition.committed_offset

    def reload(self) -> None:
        self.shard = GroupShard(self.env)
        offset = 0
        for item in self.log:
            if isinstance(item, EndMarker):
                self.shard.replay_end_transaction_marker(item.producer_id, 0, item.committed)
                offset += 1
            elif isinstance(item, TransactionalRecords):
                for key, value in item.records:
                    self.shard.replay(offset, item.producer_id, 0, key, value)
                    offset += 1
            else:
                key, value = item  # type: ignore[misc]
                self.shard.replay(offset, -1, -1, key, value)
                offset += 1
        self.shard.begin(1_000_000, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_after_the_marker(committed: bool) -> None:
    shard = Shard()
    shard.commit(3)
    shard.commit_in_transaction(7, 5)
    for _ in range(2):
        assert (shard.fetch(), shard.fetch(stable=True)) == (3, UNSTABLE)
        shard.reload()
    shard.end(7, committed)
    for _ in range(2):
        expected = 5 if committed else 3
        assert (shard.fetch(), shard.fetch(stable=True)) == (expected, expected)
        shard.reload()


def test_a_commit_that_the_log_would_refuse_is_refused_alone() -> None:
    """The log would refuse it together with all other records of the turn, which are of other groups."""
    shard = Shard()
    shard.commit_in_transaction(7, 5)
    (item,) = shard.log
    assert isinstance(item, TransactionalRecords)
    exact = len(build_batch([Record(0, 0, key, value) for key, value in item.records]))
    with pytest.raises(ApiError) as refused:
        shard.commit_in_transaction(8, 6, size_max=exact - 1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not shard.shard.outbox
    shard.end(7, True)
    assert shard.fetch(stable=True) == 5
    shard.commit_in_transaction(8, 6, size_max=exact)
    assert shard.fetch(stable=True) == UNSTABLE


def test_the_later_record_wins_in_any_order_of_the_markers() -> None:
    shard = Shard()
    shard.commit_in_transaction(7, 5)
    shard.commit_in_transaction(8, 6)
    shard.end(8, True)
    assert shard.fetch(stable=True) == UNSTABLE
    shard.end(7, True)
    assert shard.fetch() == 6
    shard.commit_in_transaction(7, 9)
    shard.commit(10)
    shard.end(7, True)
    assert shard.fetch() == 10
    shard.reload()
    assert shard.fetch() == 10


def test_a_tombstone_removes_pending_offsets() -> None:
    shard = Shard()
    shard.commit_in_transaction(7, 5)
    shard.shard.delete("g")
    shard._took()
    shard.end(7, True)
    assert shard.fetch(stable=True) == -1
    shard.reload()
    assert shard.fetch(stable=True) == -1


def test_a_group_with_pending_offsets_does_not_expire() -> None:
    shard = Shard()
    shard.commit(1)
    shard.commit_in_transaction(7, 5)
    shard.shard.begin(10_000_000, 10_000_000)
    shard.shard.expire_offsets()
    assert shard.fetch() == 1
    shard.end(7, False)
    shard.shard.expire_offsets()
    assert shard.fetch() == -1


def test_members_are_checked_only_if_they_are_given() -> None:
    shard = Shard()
    with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
        shard.commit_in_transaction(7, 5, generation_id=1, member_id="m")
    shard.commit_in_transaction(7, 5)
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        shard.commit_in_transaction(7, 6, generation_id=1, member_id="m")
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        shard.commit_in_transaction(7, 6, generation_id=0, group_instance_id="i")
