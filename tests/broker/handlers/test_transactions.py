"""The APIs of transactions on the wire: both protocols, offsets, listings, and the error codes of bad input.

The error codes follow the source of Apache Kafka 4.3; `PENSTOCK_TEST_AGAINST` names another broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.disks import on_disk
from tests.broker.handlers.transaction_requests import Txn, find, init
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    fetch,
    new_name,
    produce_request,
    read_all,
    until,
    values_in,
)

READ_COMMITTED = 1


V1, V2 = 4, 5


def committed_values(client: RawClient, topic: Topic) -> list[bytes | None]:
    return values_in(fetch(client, topic, 0, isolation_level=READ_COMMITTED))


class TestBothProtocols:
    def test_version_1(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        assert txn.produce(topic, b"early", version=10) == "INVALID_TXN_STATE"
        assert txn.add(topic.name) == ["NONE"]
        assert txn.produce(topic, b"a", version=10) == "NONE"
        assert committed_values(client, topic) == []
        assert txn.describe().transaction_state == "Ongoing"
        response = txn.end(True, V1)
        assert (response.error_code, response.producer_epoch) == (0, -1)
        until(lambda: txn.describe().transaction_state == "CompleteCommit")
        assert txn.end(True, V1).error_code == ErrorCode.NONE
        until(lambda: b"a" in committed_values(client, topic))

    def test_version_2(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        for number, committed in enumerate((True, False, True)):
            assert txn.produce(topic, b"%d" % number) == "NONE"
            response = txn.end(committed, V2)
            assert (response.error_code, response.producer_id) == (0, txn.producer_id)
            assert response.producer_epoch == txn.epoch + 1
            txn = txn._replace(epoch=response.producer_epoch)
        until(lambda: txn.describe().transaction_state == "CompleteCommit")
        seen = fetch(client, topic, 0, isolation_level=READ_COMMITTED)
        assert [(a.producer_id, a.first_offset) for a in seen.aborted_transactions or ()] == [
            (txn.producer_id, 2)
        ]

    def test_one_bad_partition_fails_all(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        codes = txn.add(topic.name, 0, 9)
        assert sorted(codes) == ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]
        assert txn.describe().transaction_state == "Empty"


def test_a_batch_that_is_not_verified_has_no_log_start(client: RawClient, topic: Topic) -> None:
    """As in Kafka: the partition has not seen it."""
    _, txn = init(client)
    batch = batch_of(
        [b"early"],
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(topic, batch, version=11)
    request.transactional_id = txn.id
    answer = client.call(PRODUCE, 11, request).responses[0].partition_responses[0]
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.TRANSACTION_ABORTABLE, -1)


class TestBadInput:
    """(request, version or epoch) and the code that Kafka answers."""

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"transactional_id": ""}, "INVALID_REQUEST"),
            ({"transaction_timeout_ms": 0}, "INVALID_TRANSACTION_TIMEOUT"),
            ({"transaction_timeout_ms": 900_001}, "INVALID_TRANSACTION_TIMEOUT"),
            ({"producer_id": 5}, "INVALID_REQUEST"),
            ({"producer_epoch": 5}, "INVALID_REQUEST"),
        ],
    )
    def test_init(self, client: RawClient, fields: dict[str, Any], expected: str) -> None:
        assert init(client, **fields)[0] == expected

    @pytest.mark.parametrize(("version", "fenced"), [(3, "INVALID_PRODUCER_EPOCH"), (5, "PRODUCER_FENCED")])
    def test_init_with_an_old_epoch(self, client: RawClient, version: int, fenced: str) -> None:
        _, txn = init(client)
        init(client, txn.id)
        error, _ = init(client, txn.id, version, producer_id=txn.producer_id, producer_epoch=txn.epoch)
        assert error == fenced

    @pytest.mark.parametrize(
        ("version", "fenced"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED"), (5, "PRODUCER_FENCED")]
    )
    def test_end(self, client: RawClient, version: int, fenced: str) -> None:
        _, txn = init(client)
        assert ErrorCode(txn.end(True, version).error_code).name == "INVALID_TXN_STATE"
        assert ErrorCode(txn.end(True, version, epoch=7).error_code).name == fenced
        unknown = txn._replace(producer_id=txn.producer_id + 1_000_000)
        assert ErrorCode(unknown.end(True, version).error_code).name == "INVALID_PRODUCER_ID_MAPPING"
        assert ErrorCode(txn._replace(id="").end(True, version).error_code).name == "INVALID_REQUEST"

    @pytest.mark.parametrize(("version", "fenced"), [(0, "INVALID_PRODUCER_EPOCH"), (3, "PRODUCER_FENCED")])
    def test_add(self, client: RawClient, topic: Topic, version: int, fenced: str) -> None:
        _, txn = init(client)
        assert txn.add(topic.name, version=version, epoch=9) == [fenced]
        unknown = txn._replace(producer_id=txn.producer_id + 1_000_000)
        assert unknown.add(topic.name, version=version) == ["INVALID_PRODUCER_ID_MAPPING"]
        assert txn.add("__consumer_offsets", version=version) == ["TOPIC_AUTHORIZATION_FAILED"]

    def test_an_unknown_id_is_not_described(self, client: RawClient) -> None:
        init(client)
        txn = Txn(client, new_name("unknown"), 1, 0)
        assert txn.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TestOffsets:
    @staticmethod
    def fetched(client: RawClient, group: str, topic: str, stable: bool) -> int | str:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=stable
        )
        (found,) = client.call(OFFSET_FETCH, 9, request).groups[0].topics[0].partitions
        return ErrorCode(found.error_code).name if found.error_code else found.committed_offset

    @pytest.mark.parametrize("version", [3, 5])
    @pytest.mark.parametrize("committed", [True, False])
    def test_offsets_end_with_the_transaction(
        self, client: RawClient, topic: Topic, version: int, committed: bool
    ) -> None:
        _, txn = init(client)
        group = new_name("group")
        assert find(client, group, 0) == ErrorCode.NONE
        if version < 5:
            assert txn.commit_offset(group, topic.name, version) == "INVALID_TXN_STATE"
            assert txn.add_offsets(group) == "NONE"
        assert txn.commit_offset(group, topic.name, version) == "NONE"
        assert self.fetched(client, group, topic.name, False) == -1
        assert self.fetched(client, group, topic.name, True) == "UNSTABLE_OFFSET_COMMIT"
        assert txn.end(committed, V1 if version < 5 else V2).error_code == ErrorCode.NONE
        ended = 7 if committed else -1
        until(lambda: self.fetched(client, group, topic.name, True) == ended)

    def test_a_group_that_no_request_has_named_before(self) -> None:
        """librdkafka finds the coordinator of the group after AddOffsetsToTxn, which has to succeed first."""
        with on_disk(MemoryFiles()) as running, RawClient(running.bootstrap) as client:
            topic = create_topic(client)
            _, txn = init(client)
            assert txn.add_offsets("first") == "NONE"
            assert find(client, "first", 0) == ErrorCode.NONE
            assert txn.commit_offset("first", topic.name, 3) == "NONE"
            assert txn.end(True, V1).error_code == ErrorCode.NONE
            until(lambda: self.fetched(client, "first", topic.name, True) == 7)

    def test_members_and_producers_are_checked(self, client: RawClient, topic: Topic) -> None:
        _, txn = init(client)
        group = new_name("group")
        assert find(client, group, 0) == ErrorCode.NONE
        name = topic.name
        wrong = txn.commit_offset(group, name, 5, generation_id=3, member_id="m")
        assert wrong == "ILLEGAL_GENERATION"
        assert txn.commit_offset(group, "no-such-topic", 5) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert txn.commit_offset(group, name, 5, producer_epoch=9) == "INVALID_PRODUCER_EPOCH"
        assert txn.commit_offset(group, name, 5) == "NONE"


@pytest.mark.parametrize("acks", [-1, 1])
def test_batches_of_two_producers_in_one_request(client: RawClient, acks: int) -> None:
    """Apache Kafka refuses all of them, also batches that are not transactional."""
    topic = create_topic(client, partitions=3)
    _, first = init(client)
    _, second = init(client)
    header: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batches = [
        batch_of([b"a"], producer_id=first.producer_id, **header),
        batch_of([b"b"], producer_id=second.producer_id, **header),
        batch_of([b"c"]),
    ]
    data = [PartitionProduceData(index=i, records=memoryview(each)) for i, each in enumerate(batches)]
    request = ProduceRequest(
        transactional_id=first.id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(topic_id=topic.id, name=topic.name, partition_data=data)],
    )
    (answer,) = client.call(PRODUCE, 13, request).responses
    codes = [ErrorCode(each.error_code).name for each in answer.partition_responses]
    assert codes == ["INVALID_PRODUCER_ID_MAPPING"] * 3
    assert read_all(client, topic, partition=2) == []
