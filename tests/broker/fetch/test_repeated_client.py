"""A repeated fetch has the same response as a fetch on a new connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.broker.fetch.repeated_client import RepeatedClientFetch, RepeatedClientFetches
from penstock.model.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.fetch import FETCH, FetchRequest, FetchResponse, PartitionData
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    delete_topic,
    fetch_request,
    now_ms,
    until,
    values_in,
    wanted,
)

VERSION = 16
COMMITTED = 1
LONG_MS = 30_000


@pytest.fixture
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles()) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client, partitions=3)


def request(topic: Topic, *offsets: int, max_bytes: int = 1 << 20, **settings: Any) -> FetchRequest:
    """For each partition from an offset."""
    named = [wanted(offset, index, max_bytes) for index, offset in enumerate(offsets)]
    return fetch_request([(topic, named)], version=VERSION, **settings)


class Reader:
    """A connection that repeats its fetch, and a new connection for each fetch beside it."""

    def __init__(self, running: BrokerOnDisk) -> None:
        self.client = RawClient(running.bootstrap)
        self._broker = running.broker

    @property
    def known(self) -> RepeatedClientFetch | None:
        """What the broker has ready for the connection."""
        return None if self._memo is None else self._memo.last

    @property
    def kept(self) -> int:
        """How many requests the broker knows of the connection."""
        return 0 if self._memo is None else len(self._memo)

    @property
    def owed(self) -> int:
        """How many answers wait."""
        return len(self._connection._responses.pending)

    @property
    def _memo(self) -> RepeatedClientFetches | None:
        memo = self._connection.memo
        return memo if isinstance(memo, RepeatedClientFetches) else None

    @property
    def _connection(self) -> Connection:
        address = "{}:{}".format(*self.client.socket.getsockname())
        (connection,) = [
            known for known in self._broker.stages.listening.server.connections if known.peer == address
        ]
        return connection

    def call(self, requested: FetchRequest) -> FetchResponse:
        """The answer, which is the one that a new connection gets, too."""
        answer = self.client.call(FETCH, VERSION, requested)
        with self.client.another() as other:
            assert _reported(answer) == _reported(other.call(FETCH, VERSION, requested))
        return answer


def _reported(response: FetchResponse) -> list[Any]:
    names = [field.name for field in PartitionData.fields if field.name != "records"]
    return [
        (topic.topic_id, bytes(reported.records or b""), *(getattr(reported, name) for name in names))  # type: ignore[arg-type]
        for topic in response.responses
        for reported in topic.partitions
    ]


@pytest.fixture
def fresh(running: BrokerOnDisk) -> Iterator[Reader]:
    """A reader that has not fetched yet."""
    reader = Reader(running)
    yield reader
    reader.client.close()


@pytest.fixture
def reader(fresh: Reader, topic: Topic) -> Reader:
    """A reader that has fetched three partitions from their beginnings twice."""
    fresh.call(request(topic, 0, 0, 0))
    first = fresh.known
    fresh.call(request(topic, 0, 0, 0))
    assert first is None and fresh.known is not None
    return fresh


@pytest.fixture
def patient(client: RawClient, topic: Topic, fresh: Reader) -> Reader:
    """A reader that has fetched the one record of the first partition twice, with a wait."""
    append(client, topic, b"old")
    for _ in range(2):
        fresh.call(request(topic, 0, 0, 0, max_wait_ms=LONG_MS))
    return fresh


def wait_for_more(patient: Reader, topic: Topic) -> None:
    """Send the next fetch, and return when the broker has it."""
    patient.client.send(FETCH, VERSION, request(topic, 1, 0, 0, max_wait_ms=LONG_MS))
    until(lambda: patient.known is not None and patient.known.is_waiting)


def received(reader: Reader) -> FetchResponse:
    answer = reader.client.receive()
    assert isinstance(answer, FetchResponse)
    return answer


def values(response: FetchResponse) -> list[list[bytes | None]]:
    return [values_in(reported) for topic in response.responses for reported in topic.partitions]


def codes(response: FetchResponse) -> list[int]:
    return [reported.error_code for topic in response.responses for reported in topic.partitions]


def test_the_last_appended_record_is_read(client: RawClient, topic: Topic, reader: Reader) -> None:
    kept = reader.known
    append(client, topic, b"a", partition=1)
    assert values(reader.call(request(topic, 0, 0, 0))) == [[], [b"a"], []]
    append(client, topic, b"b", partition=0)
    append(client, topic, b"c", partition=1)
    assert values(reader.call(request(topic, 0, 1, 0))) == [[b"b"], [b"c"], []]
    assert values(reader.call(request(topic, 1, 2, 0))) == [[], [], []]
    assert reader.known is kept


def test_partitions_may_be_named_in_turns(
    client: RawClient, topic: Topic, fresh: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka does, so that none of them is always the last."""
    answered: list[object] = []
    answer_it = RepeatedClientFetch.answer

    def noted(self: RepeatedClientFetch) -> Any:
        answered.append(self)
        return answer_it(self)

    monkeypatch.setattr(RepeatedClientFetch, "answer", noted)
    offsets = [0, 0, 0]
    known: list[object] = []
    for requested in range(15):
        changed = requested % 2
        append(client, topic, b"%d" % requested, partition=changed)
        order = [(requested + place) % 3 for place in range(3)]
        named = [wanted(offsets[index], index) for index in order]
        answer = fresh.call(fetch_request([(topic, named)], version=VERSION, max_wait_ms=LONG_MS))
        (reported,) = [reported.partitions for reported in answer.responses]
        assert {data.partition_index: values_in(data) for data in reported} == {
            index: [b"%d" % requested] if index == changed else [] for index in range(3)
        }
        offsets[changed] += 1
        known.append(fresh.known)
    assert known[:3] == [None] * 3
    assert None not in known[3:]
    assert known[6:9] == known[9:12] == known[12:]
    assert len(set(known[6:])) == 3
    assert answered == known[7:]


def test_another_form_of_the_request_is_learnt(topic: Topic, reader: Reader) -> None:
    before = reader.known
    for _ in range(3):
        reader.call(request(topic, 0, 0, 0, min_bytes=5))
    assert reader.known is not None
    assert reader.known is not before


def test_more_than_that_is_read_from_the_log(client: RawClient, topic: Topic, reader: Reader) -> None:
    kept = reader.known
    for value in (b"a", b"b", b"c"):
        append(client, topic, value, partition=2)
    append(client, topic, b"x" * 100_000, partition=0)
    assert values(reader.call(request(topic, 0, 0, 0))) == [[b"x" * 100_000], [], [b"a", b"b", b"c"]]
    assert values(reader.call(request(topic, 1, 0, 1))) == [[], [], [b"b", b"c"]]
    assert reader.known is kept


@pytest.mark.parametrize(("max_bytes", "first"), [(250, 10), (3000, 5000)])
def test_limits_hold(client: RawClient, topic: Topic, fresh: Reader, max_bytes: int, first: int) -> None:
    """At least one batch goes out, and of the others as much as has room."""
    for _ in range(2):
        fresh.call(request(topic, 0, 0, 0, max_bytes=max_bytes))
    append(client, topic, b"a" * first, partition=0)
    append(client, topic, b"b" * 300, partition=1)
    append(client, topic, b"c", partition=2)
    found = values(fresh.call(request(topic, 0, 0, 0, max_bytes=max_bytes)))
    assert found[0] == [b"a" * first]
    assert found[1] == ([] if max_bytes < 300 else [b"b" * 300])
    assert fresh.known is not None


def test_a_repeated_fetch_waits_for_the_first_bytes(client: RawClient, topic: Topic, patient: Reader) -> None:
    for offset, value in enumerate((b"a", b"b", b"c")):
        patient.client.send(FETCH, VERSION, request(topic, 1, 0, offset, max_wait_ms=LONG_MS))
        until(lambda: patient.known is not None and patient.known.is_waiting)
        append(client, topic, value, partition=2)
        assert values(received(patient)) == [[], [], [value]]


def test_a_repeated_fetch_is_answered_at_its_timeout(topic: Topic, fresh: Reader) -> None:
    for _ in range(4):
        assert values(fresh.call(request(topic, 0, 0, 0, max_wait_ms=20))) == [[], [], []]
    assert fresh.known is not None and not fresh.known.is_waiting


def test_a_pipelined_fetch_is_answered_after_the_one_before_it(
    client: RawClient, topic: Topic, patient: Reader
) -> None:
    wait_for_more(patient, topic)
    patient.client.send(FETCH, VERSION, request(topic, 0, 0, 0, max_wait_ms=LONG_MS))
    until(lambda: patient.owed == 2)
    append(client, topic, b"new", partition=1)
    assert values(received(patient)) == [[], [b"new"], []]
    assert values(received(patient))[0] == [b"old"]
    assert patient.known is not None and not patient.known.is_waiting


def test_a_client_that_disconnects_during_a_wait_leaves_no_waiter(
    topic: Topic, patient: Reader, running: BrokerOnDisk
) -> None:
    partition = running.broker.stages.storage.partitions.find(topic.id, 1)
    assert not isinstance(partition, ErrorCode)
    wait_for_more(patient, topic)
    assert partition.readers
    patient.client.close()
    until(lambda: not partition.readers)


def test_an_offset_that_is_gone_is_an_error(client: RawClient, topic: Topic, reader: Reader) -> None:
    append(client, topic, b"a", b"b", partition=1)
    delete_before(client, topic, 2, partition=1)
    gone = [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]
    assert codes(reader.call(request(topic, 0, 0, 0))) == gone
    assert codes(reader.call(request(topic, 0, 3, 0))) == gone
    assert codes(reader.call(request(topic, 0, 2, 0))) == [ErrorCode.NONE] * 3


def test_a_deleted_topic_is_an_error(client: RawClient, topic: Topic, reader: Reader) -> None:
    delete_topic(client, topic)
    assert codes(reader.call(request(topic, 0, 0, 0))) == [ErrorCode.UNKNOWN_TOPIC_ID] * 3
    assert reader.known is None


def test_deleting_a_topic_answers_a_waiting_fetch(client: RawClient, topic: Topic, patient: Reader) -> None:
    wait_for_more(patient, topic)
    delete_topic(client, topic)
    assert set(codes(received(patient))) == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_new_leader_is_an_error(
    client: RawClient, topic: Topic, running: BrokerOnDisk, reader: Reader
) -> None:
    partition = running.broker.stages.storage.partitions.find(topic.id, 1)
    assert not isinstance(partition, ErrorCode)
    old = partition.leader_epoch
    running.call(lambda: partition.lead(old + 1, None))
    append(client, topic, b"a", partition=1)
    assert values(reader.call(request(topic, 0, 0, 0))) == [[], [b"a"], []]
    assert reader.known is None
    reported = request(topic, 0, 0, 0)
    reported.topics[0].partitions[1].current_leader_epoch = old
    assert codes(reader.call(reported))[1] == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fetch_with_an_ended_leader_epoch_is_fenced(
    client: RawClient, topic: Topic, running: BrokerOnDisk, fresh: Reader
) -> None:
    partition = running.broker.stages.storage.partitions.find(topic.id, 0)
    assert not isinstance(partition, ErrorCode)
    requested = request(topic, 0, 0, 0)
    requested.topics[0].partitions[0].current_leader_epoch = old = partition.leader_epoch
    for _ in range(3):
        assert codes(fresh.call(requested)) == [ErrorCode.NONE] * 3
    running.call(lambda: partition.lead(old + 1, None))
    for _ in range(4):
        assert codes(fresh.call(requested))[0] == ErrorCode.FENCED_LEADER_EPOCH


def of_no_epoch(topic: Topic) -> FetchRequest:
    requested = request(topic, 0, 0, 0)
    requested.topics[0].partitions[0].current_leader_epoch = -2
    return requested


def of_another_past(topic: Topic) -> FetchRequest:
    requested = request(topic, 1, 0, 0)
    requested.topics[0].partitions[0].last_fetched_epoch = 100
    return requested


@pytest.mark.parametrize(
    "requested",
    [
        of_no_epoch,
        of_another_past,
        lambda topic: request(topic, 0, 0, 0, isolation_level=2),
        lambda topic: fetch_request([(topic, [wanted(0)]), (topic, [wanted(0, 1)])], version=VERSION),
        lambda topic: request(topic, 0, 0, 0, session_id=77),
        lambda topic: request(topic, *(0,) * 40),
    ],
    ids=[
        "no epoch",
        "another past",
        "no isolation level",
        "a topic twice",
        "a session that is none",
        "very many",
    ],
)
def test_unusual_requests_get_the_same_answer_each_time(
    client: RawClient, topic: Topic, fresh: Reader, requested: Callable[[Topic], FetchRequest]
) -> None:
    append(client, topic, b"a")
    first, *others = [fresh.call(requested(topic)) for _ in range(4)]
    assert all(other == first for other in others)


def test_requests_that_cannot_repeat_are_not_kept(running: BrokerOnDisk, topic: Topic, fresh: Reader) -> None:
    """Otherwise large requests that differ each time would fill the broker's memory."""
    for count in range(33, 37):
        fresh.call(request(topic, *(0,) * count))
    assert fresh.kept == 0
    for most in range(200):
        fresh.call(request(topic, *(0,) * (most % 32 + 1), max_bytes=1 + most))
    assert 0 < fresh.kept <= 64


def test_readers_of_committed_records_get_the_aborted_transactions(
    client: RawClient, topic: Topic, running: BrokerOnDisk, fresh: Reader
) -> None:
    append(client, topic, b"plain", partition=1)
    for _ in range(2):
        fresh.call(request(topic, 0, 0, 0, isolation_level=COMMITTED))
    assert fresh.known is not None
    partition = running.broker.stages.storage.partitions.find(topic.id, 1)
    assert not isinstance(partition, ErrorCode)
    open_one = bytearray(
        batch_of([b"open"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    end = bytearray(
        build_end_transaction(EndTransaction(False, 0), producer_id=7, producer_epoch=0, timestamp=now_ms())
    )
    running.call(lambda: partition.append(memoryview(open_one), guard=NO_VERIFICATION))
    held_back = fresh.call(request(topic, 0, 1, 0, isolation_level=COMMITTED))
    assert values(held_back) == [[], [], []]
    running.call(lambda: partition.append(memoryview(end), AppendOrigin.COORDINATOR))
    answer = fresh.call(request(topic, 0, 1, 0, isolation_level=COMMITTED))
    (reported,) = [reported for reported in answer.responses[0].partitions if reported.partition_index == 1]
    assert [aborted.first_offset for aborted in reported.aborted_transactions or []] == [1]
