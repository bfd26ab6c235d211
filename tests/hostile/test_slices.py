"""Requests of 20,000 elements that one decision has to take as a whole, or that need a state before.

Each of them held the loop for 25 to 110 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis import APIS
from penstock.wire.apis import initialize_share_group_state as initialize
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import write_share_group_state as write
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.share_fetch import SHARE_FETCH, FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest
from penstock.wire.messages import decode_response
from penstock.wire.schema import Struct
from tests.hostile.clients import Kind, frame_of
from tests.hostile.conftest import Metered
from tests.hostile.large import Case, Form
from tests.hostile.meter import REPEATED
from tests.hostile.search import Search
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]
_MANY = 20_000
_numbers = count()


@pytest.mark.parametrize(
    ("name", "path", "form", "kind"),
    [
        ("AddPartitionsToTxn", "transactions.topics", Form.WIDE, Kind.SUPER),
        ("AlterClientQuotas", "entries.entity", Form.UNKNOWN, Kind.DENIED),
        ("AlterUserScramCredentials", "upsertions", Form.UNKNOWN, Kind.DENIED),
        ("AlterUserScramCredentials", "deletions", Form.UNKNOWN, Kind.SUPER),
        ("ConsumerGroupHeartbeat", "subscribed_topic_names", Form.UNKNOWN, Kind.PARTLY),
        ("ReadShareGroupStateSummary", "shards", Form.UNKNOWN, Kind.SUPER),
        ("ShareFetch", "topics", Form.UNKNOWN, Kind.SUPER),
        ("ShareGroupHeartbeat", "subscribed_topic_names", Form.UNKNOWN, Kind.PARTLY),
        ("ShareGroupHeartbeat", "subscribed_topic_names", Form.WIDE, Kind.SUPER),
        ("StreamsGroupHeartbeat", "topology.subtopologies.source_topics", Form.UNKNOWN, Kind.PARTLY),
        ("StreamsGroupHeartbeat", "active_tasks", Form.WIDE, Kind.SUPER),
        ("UpdateFeatures", "feature_updates", Form.UNKNOWN, Kind.SUPER),
    ],
)
def test_a_long_list_takes_turns(secured: Metered, name: str, path: str, form: Form, kind: Kind) -> None:
    api = next(api for api in APIS.values() if api.name == name)
    case = Case(api, api.max_version, tuple(path.split(".")), form, secured.topic_ids)
    # A machine that is slow for a moment makes one measurement too long, not several.
    for _ in range(4):
        search = Search(secured.meter, 1, _MANY, shrinks=False)
        search._check_stall(case, kind)
        if not search.failures:
            break
    assert not search.failures, search.failures[0]


def _step(
    plain: Metered,
    api: Api[Any, Any],
    request: Callable[[], Struct],
    version: int | None = None,
    at_least: int = 1,
) -> tuple[float, Any]:
    """The shortest of the longest steps of a few requests, and the last response.

    The first request whose steps are within the limit is the last one, if `at_least` were sent.
    """
    steps: list[float] = []
    version = api.max_version if version is None else version
    client = plain.meter.client(Kind.OPEN)
    while len(steps) < at_least or (len(steps) < REPEATED and min(steps) >= plain.meter.limits.step_ms):
        frame = frame_of(api, version, request())
        plain.target.steps()
        answer = client.exchange(frame)
        steps.append(plain.target.steps().longest_ms)
    return min(steps), decode_response(api, version, memoryview(answer))


def _names(number: int, length: int = 0) -> list[str]:
    salt = next(_numbers)
    return [f"name-{salt}-{i:0>{length}}" for i in range(number)]


def _joining(names: list[str], group: str = "many-names") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"member-{next(_numbers)}",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def test_a_member_that_subscribes_to_many_topics_joins(plain: Metered) -> None:
    step_ms, response = _step(plain, CONSUMER_GROUP_HEARTBEAT, lambda: _joining(_names(_MANY)))
    assert response.error_code == ErrorCode.NONE
    assert step_ms < plain.meter.limits.step_ms


def test_a_share_member_that_subscribes_to_many_topics_joins(plain: Metered) -> None:
    def joining() -> ShareGroupHeartbeatRequest:
        member = f"member-{next(_numbers)}"
        return ShareGroupHeartbeatRequest(
            group_id="many-shared", member_id=member, member_epoch=0, subscribed_topic_names=_names(_MANY)
        )

    step_ms, response = _step(plain, SHARE_GROUP_HEARTBEAT, joining)
    assert response.error_code == ErrorCode.NONE
    assert step_ms < plain.meter.limits.step_ms


def test_names_that_no_record_can_hold_do_not_unload_the_groups_of_their_shard(plain: Metered) -> None:
    """The log refused the record, so the coordinator discarded all groups and loaded its log again."""
    client = plain.meter.client(Kind.OPEN)
    too_long = client.call(CONSUMER_GROUP_HEARTBEAT, _joining(_names(_MANY, length=200), "long"))
    assert too_long.error_code == ErrorCode.INVALID_REQUEST
    too_many = client.call(CONSUMER_GROUP_HEARTBEAT, _joining(_names(_MANY + 1), "long"))
    assert too_many.error_code == ErrorCode.INVALID_REQUEST
    joined = client.call(CONSUMER_GROUP_HEARTBEAT, _joining(_names(3), "long"))
    assert joined.error_code == ErrorCode.NONE


def test_a_share_session_of_many_partitions_is_read_in_turns(plain: Metered) -> None:
    """Also with each later request, which names no partition."""
    epochs = count()

    def fetch() -> ShareFetchRequest:
        epoch = next(epochs)
        partitions = [FetchPartition(partition_index=i) for i in range(0 if epoch else _MANY)]
        return ShareFetchRequest(
            group_id="many-shared",
            member_id="reader",
            share_session_epoch=epoch,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[FetchTopic(topic_id=plain.topic_ids[0], partitions=partitions)] if partitions else [],
        )

    step_ms, response = _step(plain, SHARE_FETCH, fetch, at_least=REPEATED)
    assert response.error_code == ErrorCode.NONE
    assert sum(len(topic.partitions) for topic in response.responses) >= _MANY - 3
    assert step_ms < plain.meter.limits.step_ms


def _initialize(plain: Metered, group: str, topic_id: bytes, partitions: int) -> None:
    client = plain.meter.client(Kind.OPEN)
    keys = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{group}:AAAAAAAAAAAAAAAAAAAAAA:0"])
    eventually(lambda: not client.call(FIND_COORDINATOR, keys).coordinators[0].error_code)
    data = [initialize.PartitionData(partition=i, state_epoch=1, start_offset=0) for i in range(partitions)]
    topic = initialize.InitializeStateData(topic_id=topic_id, partitions=data)
    request = initialize.InitializeShareGroupStateRequest(group_id=group, topics=[topic])
    (result,) = client.call(initialize.INITIALIZE_SHARE_GROUP_STATE, request).results
    assert not any(each.error_code for each in result.partitions)


def _written(group: str, topic_id: bytes, partition: int = 0) -> write.WriteShareGroupStateRequest:
    """As many state batches as a share partition may have."""
    batches = [
        write.StateBatch(first_offset=2 * i, last_offset=2 * i, delivery_state=2 * (i % 2))
        for i in range(10_000)
    ]
    data = write.PartitionData(partition=partition, state_epoch=1, start_offset=0, state_batches=batches)
    topic = write.WriteStateData(topic_id=topic_id, partitions=[data])
    return write.WriteShareGroupStateRequest(group_id=group, topics=[topic])


def test_many_state_batches_are_written_some_at_a_time(plain: Metered) -> None:
    group, topic_id = "many-states", plain.topic_ids[0]
    _initialize(plain, group, topic_id, 1)
    step_ms, response = _step(plain, write.WRITE_SHARE_GROUP_STATE, lambda: _written(group, topic_id))
    assert response.results[0].partitions[0].error_code == ErrorCode.NONE
    assert step_ms < plain.meter.limits.step_ms


def test_many_share_partitions_are_read_one_after_the_other(plain: Metered) -> None:
    """20 share partitions with 10,000 state batches each took 106 ms, on a machine at half of its speed."""
    partitions, group, client = 20, "many-reads", plain.meter.client(Kind.OPEN)
    creation = CreatableTopic(name="shared", num_partitions=partitions, replication_factor=1)
    (topic,) = client.call(CREATE_TOPICS, CreateTopicsRequest(topics=[creation], timeout_ms=60_000)).topics
    _initialize(plain, group, topic.topic_id, partitions)
    for index in range(partitions):
        response = client.call(write.WRITE_SHARE_GROUP_STATE, _written(group, topic.topic_id, index))
        assert response.results[0].partitions[0].error_code == ErrorCode.NONE
    wanted = read.ReadStateData(
        topic_id=topic.topic_id, partitions=[read.PartitionData(partition=i) for i in range(partitions)]
    )
    request = read.ReadShareGroupStateRequest(group_id=group, topics=[wanted])
    step_ms, found = _step(plain, read.READ_SHARE_GROUP_STATE, lambda: request)
    (result,) = found.results
    assert [len(each.state_batches) for each in result.partitions] == [10_000] * partitions
    assert step_ms < plain.meter.limits.step_ms


@pytest.mark.parametrize("version", [3, 5])
def test_many_partitions_are_added_to_a_transaction(plain: Metered, version: int) -> None:
    """Their record was encoded twice, which took 20 to 28 ms on a quiet machine, and takes 13 to 17 now."""
    client = plain.meter.client(Kind.OPEN)
    names = ["transactional-0", "transactional-1"]
    for name in names:
        # The other version may have created them.
        creation = CreatableTopic(name=name, num_partitions=_MANY // 2, replication_factor=1)
        client.call(CREATE_TOPICS, CreateTopicsRequest(topics=[creation], timeout_ms=60_000))

    def adding() -> AddPartitionsToTxnRequest:
        named = f"adding-{next(_numbers)}"
        init = InitProducerIdRequest(transactional_id=named, transaction_timeout_ms=60_000)
        eventually(lambda: not client.call(INIT_PRODUCER_ID, init).error_code)
        producer = client.call(INIT_PRODUCER_ID, init)
        topics = [AddPartitionsToTxnTopic(name=name, partitions=list(range(_MANY // 2))) for name in names]
        if version < 4:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=named,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=topics,
            )
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=named,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])

    step_ms, response = _step(plain, ADD_PARTITIONS_TO_TXN, adding, version)
    results = response.results_by_topic_v3_and_below or response.results_by_transaction[0].topic_results
    codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    assert codes == [ErrorCode.NONE] * _MANY
    assert step_ms < plain.meter.limits.step_ms
