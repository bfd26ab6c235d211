"""Transactional batches wait for their verification, in order, and do not outlive a marker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.broker.produce.transactional import TransactionalAppends, produce_error
from penstock.broker.produce.verification import Membership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.txn_markers import Marker, append_marker
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.buffers import BufferPool
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Appended
from penstock.storage.memory import MemoryFiles
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, now_ms
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import StillClock

PRODUCER = 1000
V1, V2 = 11, 12


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles()) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


class _Client:
    """The connection that batches come from."""

    owner = "a"
    address = "127.0.0.1"


_CLIENT = _Client()


class Verifier:
    """Keeps the requests."""

    def __init__(self) -> None:
        self.requested: list[tuple[Membership, Callable[[ErrorCode], None]]] = []

    def verify(
        self, membership: Membership, partition: tuple[str, int], verified: Callable[[ErrorCode], None]
    ) -> None:
        self.requested.append((membership, verified))


class Leader:
    """A partition, and the transactional batches that are sent to it."""

    def __init__(self, running: BrokerOnDisk, topic: Topic) -> None:
        found = running.broker.stages.storage.partitions.find(topic.name, 0)
        assert isinstance(found, Partition)
        self.partition = found
        self._running = running
        self.verifier = Verifier()
        self.memory = BufferPool(1 << 20)
        self.enabled = True
        self.appends = TransactionalAppends(
            self.verifier,  # type: ignore[arg-type]
            InlineWorkers(),
            self.memory,
            StillClock(),
            lambda: self.enabled,
        )
        self.results: list[int | ErrorCode] = []

    def send(self, sequence: int, *, epoch: int = 0, version: int = V2) -> None:
        """What the produce handler does with a batch."""
        batch = memoryview(
            bytearray(
                batch_of(
                    [b"x"],
                    producer_id=PRODUCER,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
        )

        def work() -> None:
            try:
                guard = self.appends.guard(self.partition, batch, version)
            except ApiError as e:
                self.results.append(e.code)
                return
            if guard is None or guard is NO_VERIFICATION:
                self.took(self.partition, self.partition.append(batch, guard=guard))
            else:
                self.appends.park(self.partition, batch, guard, "t", version, True, self.took, _CLIENT)
                batch[:] = bytes(len(batch))

        self._running.call(work)

    def took(self, partition: Partition, result: Appended | ApiError) -> None:
        self.results.append(result.code if isinstance(result, ApiError) else result.base_offset)

    def verified(self, code: ErrorCode = ErrorCode.NONE, nth: int = 0) -> None:
        _, verified = self.verifier.requested.pop(nth)
        self._running.call(lambda: verified(code))

    def end(self, epoch: int, version: int) -> None:
        marker = Marker(PRODUCER, epoch, True, 0, version)
        self._running.call(lambda: append_marker(self.partition, marker, now_ms()))


@pytest.fixture
def leader(running: BrokerOnDisk, topic: Topic) -> Leader:
    return Leader(running, topic)


def test_the_first_batch_waits_and_later_ones_behind_it(leader: Leader) -> None:
    for sequence in range(3):
        leader.send(sequence)
    assert leader.results == []
    (requested,) = leader.verifier.requested
    assert requested[0] == Membership("t", PRODUCER, 0, adds=True)
    assert leader.memory.held > 0, "copies count as memory of requests"
    leader.verified()
    assert leader.results == [0, 1, 2]
    assert leader.memory.held == 0
    leader.send(3)
    assert leader.results[3:] == [3]
    assert not leader.verifier.requested, "once per transaction and partition"


def test_each_transaction_is_verified(leader: Leader) -> None:
    leader.send(0, version=V1)
    assert leader.verifier.requested[0][0].adds is False
    leader.verified()
    leader.end(0, 1)
    leader.send(1, version=V1)
    leader.verified()
    assert leader.results == [0, 2]


def test_a_result_that_comes_after_the_marker_admits_nothing(leader: Leader) -> None:
    leader.send(0, version=V1)
    leader.end(0, 1)
    leader.send(0, version=V1)
    assert len(leader.verifier.requested) == 2, "the second has a verification of its own"
    leader.verified()
    assert leader.results == [ErrorCode.INVALID_TXN_STATE]
    leader.verified()
    assert leader.results[1:] == [1]


def test_a_failed_verification_fails_all_that_wait(leader: Leader) -> None:
    leader.send(0)
    leader.send(1)
    leader.verified(ErrorCode.NOT_COORDINATOR)
    assert leader.results == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    leader.send(1)
    leader.verified()
    assert leader.results[2:] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], "0 has to come first"
    leader.send(0)
    leader.verified()
    assert leader.results[3:] == [0]


def test_the_next_epoch_has_a_verification_of_its_own(leader: Leader) -> None:
    leader.send(0, epoch=0)
    leader.send(0, epoch=1)
    assert [membership.producer_epoch for membership, _ in leader.verifier.requested] == [0, 1]


def test_a_fenced_epoch_is_not_verified(leader: Leader) -> None:
    leader.send(0, epoch=2)
    leader.verified()
    leader.send(0, epoch=1)
    assert leader.results == [0, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not leader.verifier.requested


def test_version_1_can_go_without_verification(leader: Leader) -> None:
    leader.enabled = False
    leader.send(0, version=V1)
    assert leader.results == [0]
    leader.end(0, 1)
    leader.send(1, version=V2)
    assert len(leader.verifier.requested) == 1, "version 2 has to add the partition"


@pytest.mark.parametrize(
    ("code", "version", "answered"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_the_errors_of_coordinators_as_producers_know_them(
    code: ErrorCode, version: int, answered: ErrorCode
) -> None:
    assert produce_error(code, version).code is answered
