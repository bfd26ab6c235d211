"""What readers of committed records see: the last stable offset and aborted transactions.

There is no coordinator yet, so the tests append what one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.fetch import FETCH, PartitionData
from penstock.wire.apis.list_offsets import LIST_OFFSETS
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    LATEST,
    Topic,
    append,
    batch_of,
    edge_versions,
    fetch,
    list_offset,
    now_ms,
    record,
    until,
    values_in,
)

PRODUCER = 1000
FETCHES = pytest.mark.parametrize("version", edge_versions(FETCH))


@pytest.fixture
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles()) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


class Transaction:
    """Writes into a partition as a transactional producer and its coordinator do."""

    def __init__(self, running: BrokerOnDisk, topic: Topic) -> None:
        self._running = running
        self._topic = topic
        self._sequence = 0

    def write(self, value: bytes, timestamp: int | None = None) -> None:
        batch = batch_of(
            [record(value, timestamp=timestamp)],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += 1
        self._append(batch, AppendOrigin.CLIENT)

    def end(self, *, committed: bool) -> None:
        marker = build_end_transaction(
            EndTransaction(committed, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=now_ms()
        )
        self._append(marker, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytes, origin: AppendOrigin) -> None:
        partition = self._running.broker.stages.storage.partitions.find(self._topic.name, 0)
        assert not isinstance(partition, ErrorCode)
        self._running.call(
            lambda: partition.append(memoryview(bytearray(batch)), origin, guard=NO_VERIFICATION)
        )


@pytest.fixture
def transaction(running: BrokerOnDisk, topic: Topic) -> Transaction:
    return Transaction(running, topic)


def committed(client: RawClient, topic: Topic, version: int = FETCH.max_version) -> PartitionData:
    return fetch(client, topic, 0, version=version, isolation_level=1)


@FETCHES
def test_an_open_transaction_hides_its_own_and_all_later_records(
    client: RawClient, topic: Topic, transaction: Transaction, version: int
) -> None:
    append(client, topic, b"before")
    transaction.write(b"open")
    append(client, topic, b"behind")

    seen = committed(client, topic, version)
    everything = fetch(client, topic, 0, version=version)

    assert values_in(seen) == [b"before"]
    assert (seen.high_watermark, seen.last_stable_offset) == (3, 1)
    assert values_in(everything) == [b"before", b"open", b"behind"]


@pytest.mark.parametrize("version", [v for v in edge_versions(LIST_OFFSETS) if v >= 2])
def test_latest_is_the_last_stable_offset_for_readers_of_committed_records(
    client: RawClient, topic: Topic, transaction: Transaction, version: int
) -> None:
    append(client, topic, b"before")
    transaction.write(b"open")

    assert list_offset(client, topic, LATEST, version=version, committed=True).offset == 1
    assert list_offset(client, topic, LATEST, version=version).offset == 2


def test_a_timestamp_finds_nothing_that_is_not_committed(
    client: RawClient, topic: Topic, transaction: Transaction
) -> None:
    at = now_ms() - 1000
    transaction.write(b"open", timestamp=at)

    assert list_offset(client, topic, at, committed=True).offset == -1
    assert list_offset(client, topic, at).offset == 0

    transaction.end(committed=True)
    assert list_offset(client, topic, at, committed=True).offset == 0


@FETCHES
def test_a_commit_shows_the_records_of_its_transaction(
    client: RawClient, topic: Topic, transaction: Transaction, version: int
) -> None:
    transaction.write(b"first")
    transaction.write(b"second")
    transaction.end(committed=True)

    seen = committed(client, topic, version)

    assert values_in(seen)[:2] == [b"first", b"second"]
    assert seen.last_stable_offset == 3
    assert not seen.aborted_transactions


@FETCHES
def test_an_abort_is_reported_to_readers_of_committed_records_alone(
    client: RawClient, topic: Topic, transaction: Transaction, version: int
) -> None:
    append(client, topic, b"before")
    transaction.write(b"aborted")
    transaction.end(committed=False)

    seen = committed(client, topic, version)
    everything = fetch(client, topic, 0, version=version)

    assert seen.aborted_transactions is not None
    assert [(a.producer_id, a.first_offset) for a in seen.aborted_transactions] == [(PRODUCER, 1)]
    assert seen.last_stable_offset == 3
    assert everything.aborted_transactions is None


def test_a_waiting_reader_of_committed_records_is_not_woken_for_nothing(
    client: RawClient, topic: Topic, transaction: Transaction
) -> None:
    transaction.write(b"open")

    answer = fetch(client, topic, 0, isolation_level=1, max_wait_ms=50)

    assert (values_in(answer), answer.error_code) == ([], ErrorCode.NONE)


class Waiting:
    """A request that waits for bytes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def more(self, size: int) -> None:
        self.sizes.append(size)


def test_an_open_transaction_does_not_wake_readers_of_committed_records(
    running: BrokerOnDisk, client: RawClient, topic: Topic, transaction: Transaction
) -> None:
    """Each append would cause an empty response and another request."""
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)
    everything, committed_only = Waiting(), Waiting()
    partition.readers.join(everything)
    partition.readers.join(committed_only, committed=True)

    append(client, topic, b"before")
    assert committed_only.sizes == everything.sizes
    transaction.write(b"open")
    append(client, topic, b"behind")
    assert (len(everything.sizes), len(committed_only.sizes)) == (3, 1)

    transaction.end(committed=True)
    hidden = sum(everything.sizes[1:])
    assert committed_only.sizes[1:] == [hidden], "all that was hidden counts"

    partition.readers.leave(committed_only)
    append(client, topic, b"last")
    assert len(committed_only.sizes) == 2


def test_the_end_of_a_transaction_answers_a_waiting_reader(
    running: BrokerOnDisk, client: RawClient, topic: Topic, transaction: Transaction
) -> None:
    transaction.write(b"open")
    partition = running.broker.stages.storage.partitions.find(topic.name, 0)
    assert not isinstance(partition, ErrorCode)

    def ended_while_it_waits() -> None:
        until(lambda: bool(partition.readers))
        transaction.end(committed=True)

    thread = Thread(target=ended_while_it_waits)
    thread.start()
    answer = fetch(client, topic, 0, isolation_level=1, max_wait_ms=60_000)
    thread.join()

    assert values_in(answer)[0] == b"open"
