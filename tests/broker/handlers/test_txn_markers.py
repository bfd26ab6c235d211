"""WriteTxnMarkers: markers in Kafka's format, fencing, and the error codes of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.records.batch import read_header
from penstock.records.control import EndTransaction, parse_end_transaction
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.handlers.transaction_requests import find
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, batch_of, fetch, stored_batches, values_in

PRODUCER = 1000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles()) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def write(running: BrokerOnDisk, topic: Topic, value: bytes, sequence: int = 0, epoch: int = 0) -> None:
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    batch = batch_of(
        [value],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    running.call(lambda: partition.append(memoryview(bytearray(batch)), guard=NO_VERIFICATION))


def end(
    client: RawClient,
    topic: str,
    *,
    commit: bool = True,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    index: int = 0,
    transaction_version: int = 0,
    version: int = 2,
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    response = client.call(WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest(markers=[marker]))
    (result,) = response.markers
    assert result.producer_id == producer_id
    (answered,) = result.topics
    (partition,) = answered.partitions
    assert (answered.name, partition.partition_index) == (topic, index)
    return ErrorCode(partition.error_code)


@pytest.mark.parametrize(
    ("state", "ends"), [("fenced", True), ("returning", True), ("mirroring", False), ("closing", False)]
)
def test_markers_end_transactions_of_topics_that_had_producers(
    running: BrokerOnDisk, client: RawClient, topic: Topic, state: str, ends: bool
) -> None:
    """A topic that is fenced, or returns to a link, was an ordinary one; a mirror takes no markers."""
    write(running, topic, b"x")
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    linked = replace(partition.log.config, penstock_link=f"west/{state}/{'A' * 22}/orders")
    running.call(lambda: partition.log.reconfigure(linked))
    assert end(client, topic.name) is ErrorCode.NONE
    assert fetch(client, topic, 0, isolation_level=1).last_stable_offset == (2 if ends else 0)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction(
    running: BrokerOnDisk, client: RawClient, topic: Topic, commit: bool, version: int
) -> None:
    write(running, topic, b"x")
    assert fetch(client, topic, 0, isolation_level=1).last_stable_offset == 0

    assert end(client, topic.name, commit=commit, coordinator_epoch=7, version=version) is ErrorCode.NONE

    answer = fetch(client, topic, 0, isolation_level=1)
    assert answer.last_stable_offset == 2
    assert [a.first_offset for a in answer.aborted_transactions or ()] == ([] if commit else [0])
    batch = stored_batches(answer)[1]
    header = read_header(batch)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, 0, -1)
    assert parse_end_transaction(batch) == EndTransaction(commit, 7)


def test_an_old_producer_epoch_is_fenced(running: BrokerOnDisk, client: RawClient, topic: Topic) -> None:
    write(running, topic, b"x", epoch=3)
    assert end(client, topic.name, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(client, topic.name, epoch=3) is ErrorCode.NONE


def test_an_old_coordinator_is_fenced(running: BrokerOnDisk, client: RawClient, topic: Topic) -> None:
    write(running, topic, b"x")
    assert end(client, topic.name, coordinator_epoch=5) is ErrorCode.NONE
    write(running, topic, b"y", sequence=1)
    assert end(client, topic.name, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert fetch(client, topic, 0, isolation_level=1).last_stable_offset == 2


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(
    running: BrokerOnDisk, client: RawClient, topic: Topic
) -> None:
    write(running, topic, b"x")
    assert end(client, topic.name, epoch=0, transaction_version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(client, topic.name, epoch=1, transaction_version=2) is ErrorCode.NONE
    assert end(client, topic.name, epoch=1, transaction_version=2) is ErrorCode.NONE, "a retry"
    write(running, topic, b"y", epoch=1)
    assert end(client, topic.name, epoch=1, transaction_version=2) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("name", "index"), [("no-such-topic", 0), (None, 99)])
def test_an_unknown_partition(client: RawClient, topic: Topic, name: str | None, index: int) -> None:
    assert end(client, name or topic.name, index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 0), (PRODUCER, -1)])
def test_markers_of_no_producer(client: RawClient, topic: Topic, producer_id: int, epoch: int) -> None:
    """Kafka cannot build such a batch, and answers -1."""
    for name in (topic.name, OFFSETS_TOPIC):
        find(client, "group", 0)
        code = end(client, name, producer_id=producer_id, epoch=epoch)
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert append(client, topic, b"first") == 0


def test_no_markers(client: RawClient) -> None:
    assert client.call(WRITE_TXN_MARKERS, 2, WriteTxnMarkersRequest()).markers == []


def test_a_marker_without_records(client: RawClient, topic: Topic) -> None:
    assert end(client, topic.name, commit=False) is ErrorCode.NONE
    append(client, topic, b"behind")
    answer = fetch(client, topic, 1, isolation_level=1)
    assert (values_in(answer), answer.last_stable_offset) == ([b"behind"], 2)
