"""Which records share groups read: read_committed, the start by duration, and deletion by retention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.replica.partition import Partition
from penstock.broker.shares import reading
from penstock.model.errors import ErrorCode
from penstock.records.batch import BatchHeader
from penstock.records.record import iter_batches
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, batch_of, delete_before, now_ms, produce, record
from tests.broker.share_groups import ACCEPT, RELEASE, Member, offsets, set_group_configs

PRODUCER = 1000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles()) as started:
        yield started


def write(running: BrokerOnDisk, topic: Topic, sequence: int) -> None:
    """One record of a transaction."""
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    batch = batch_of(
        [b"x"], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    running.call(lambda: partition.append(memoryview(bytearray(batch)), guard=NO_VERIFICATION))


def end(client: RawClient, topic: Topic, committed: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=0,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])],
    )
    client.call(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))


@pytest.mark.parametrize("committed", [True, False])
def test_read_committed(
    running: BrokerOnDisk, client: RawClient, topic: Topic, group: str, committed: bool
) -> None:
    """Records of an open transaction wait. Aborted records and markers are finished without a delivery."""
    set_group_configs(client, group, share_isolation_level="read_committed")
    append(client, topic, b"before")
    write(running, topic, sequence=0)
    append(client, topic, b"after")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    assert member.fetch(max_wait_ms=1)[1] is None
    end(client, topic, committed)
    expected = [(1, 2, 1)] if committed else [(2, 2, 1)]
    assert member.take() == expected
    assert member.outcome((0, 0, [ACCEPT]), (expected[0][0], 2, [ACCEPT])) == "NONE"
    append(client, topic, b"last")
    assert member.take() == [(4, 4, 1)]
    assert member.outcome((4, 4, [ACCEPT])) == "NONE"
    assert offsets(client, group) == [(5, 0)]


def test_read_uncommitted(running: BrokerOnDisk, client: RawClient, topic: Topic, group: str) -> None:
    write(running, topic, sequence=0)
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    assert member.outcome((0, 0, [ACCEPT])) == "NONE"
    end(client, topic, committed=False)
    while offsets(client, group) != [(2, 0)]:  # the marker is finished without a delivery
        assert member.fetch(max_wait_ms=1)[1] is None


def test_a_member_that_wants_few_records_costs_few_headers(
    client: RawClient, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        append(client, topic, b"x")
    member = Member(client, group, topic).join()
    seen = []

    def counted(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
        for found in iter_batches(data):
            seen.append(found)
            yield found

    monkeypatch.setattr(reading, "iter_batches", counted)
    wanted = {"max_records": 3, "batch_size": 1, "share_acquire_mode": 1}
    assert member.take(**wanted) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    assert len(seen) <= 4
    assert member.outcome((1, 1, [RELEASE])) == "NONE"
    seen.clear()
    assert member.take(**wanted) == [(1, 1, 2), (3, 3, 1), (4, 4, 1)]
    assert len(seen) <= 6


def test_a_gap_that_is_longer_than_the_wanted_records(
    running: BrokerOnDisk, client: RawClient, topic: Topic, group: str
) -> None:
    """Compaction leaves such gaps."""
    append(client, topic, b"first")
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    batch = (100).to_bytes(8, "big") + batch_of([b"after the gap"])[8:]
    running.call(lambda: partition.log.append_replicated(batch))
    append(client, topic, b"last")
    member = Member(client, group, topic).join()
    one = {"max_records": 1, "batch_size": 1, "share_acquire_mode": 1}
    assert [member.take(**one) for _ in range(3)] == [[(0, 0, 1)], [(100, 100, 1)], [(101, 101, 1)]]


def test_many_batches_without_records_are_read_together(
    running: BrokerOnDisk, client: RawClient, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_group_configs(client, group, share_isolation_level="read_committed")
    for sequence in range(20):
        write(running, topic, sequence)
        end(client, topic, committed=False)
    append(client, topic, b"last")
    reads: list[int] = []
    read = reading._read

    def counted(partition: Partition, offset: int, *others: Any) -> memoryview:
        reads.append(offset)
        return read(partition, offset, *others)

    monkeypatch.setattr(reading, "_read", counted)
    member = Member(client, group, topic).join()
    assert member.take(max_records=1, batch_size=1, share_acquire_mode=1) == [(40, 40, 1)]
    assert len(reads) <= 3


def test_the_start_by_duration(client: RawClient, topic: Topic, group: str) -> None:
    set_group_configs(client, group, share_auto_offset_reset="by_duration:PT1H")
    for age_ms in (7_200_000, 4_000_000, 3_000_000, 0):
        produce(client, topic, batch_of([record(b"x", timestamp=now_ms() - age_ms)]))
    assert Member(client, group, topic).join().take() == [(2, 3, 1)]


def test_the_start_at_the_latest_offset(client: RawClient, topic: Topic, group: str) -> None:
    set_group_configs(client, group, share_auto_offset_reset="latest")
    append(client, topic, b"before")
    member = Member(client, group, topic).join()
    while offsets(client, group) != [(1, 0)]:
        member.fetch(max_wait_ms=1)
    append(client, topic, b"after")
    assert member.take() == [(1, 1, 1)]


def test_deleted_records_are_finished(client: RawClient, topic: Topic, group: str) -> None:
    """Acknowledgements of offsets below the log start offset succeed, and count for nothing."""
    for _ in range(3):
        append(client, topic, b"a", b"b")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 5, 1)]
    assert delete_before(client, topic, 3).error_code == ErrorCode.NONE
    member.fetch(max_wait_ms=1)
    assert member.outcome((0, 4, [RELEASE])) == "NONE"
    assert member.take() == [(3, 4, 2)]
    assert member.outcome((3, 5, [ACCEPT])) == "NONE"
    assert offsets(client, group) == [(6, 0)]
