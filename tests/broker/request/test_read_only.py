"""Each request that would change a topic is refused by a broker that serves a backup, in all its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.request.read_only import refusals
from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.api import Api
from penstock.wire.apis import add_partitions_to_txn as transactions
from penstock.wire.apis import alter_configs as legacy
from penstock.wire.apis import create_partitions as partitions
from penstock.wire.apis import create_topics as created
from penstock.wire.apis import delete_records as records
from penstock.wire.apis import delete_topics as deleted
from penstock.wire.apis import incremental_alter_configs as incremental
from penstock.wire.apis import produce
from penstock.wire.schema import Struct
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, every_version

BACKUP = "s3://backups/kafka@2026-11-17T12:00"
REASON = f"this broker serves the backup {BACKUP} read-only"
TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    with (
        broker(config={"penstock.mount": BACKUP, "penstock.memory": "true"}) as running,
        RawClient(running.bootstrap) as connected,
    ):
        yield connected


def produced(acks: int = -1) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=3, records=memoryview(batch_of([b"x"])))
    return produce.ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[produce.TopicProduceData(name="t", partition_data=[data])]
    )


#: for each API a request, and the (error code, message) pairs of its response; None if it has no message
CASES: dict[Api[Any, Any], tuple[Any, Any]] = {
    produce.PRODUCE: (
        produced,
        lambda r: [(p.error_code, p.error_message) for t in r.responses for p in t.partition_responses],
    ),
    created.CREATE_TOPICS: (
        lambda: created.CreateTopicsRequest(
            topics=[created.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in "ab"]
        ),
        lambda r: [(t.error_code, t.error_message) for t in r.topics],
    ),
    deleted.DELETE_TOPICS: (
        lambda: deleted.DeleteTopicsRequest(
            topic_names=["a", "b"], topics=[deleted.DeleteTopicState(name=name) for name in "ab"]
        ),
        lambda r: [(t.error_code, t.error_message) for t in r.responses],
    ),
    records.DELETE_RECORDS: (
        lambda: records.DeleteRecordsRequest(
            topics=[
                records.DeleteRecordsTopic(
                    name="a", partitions=[records.DeleteRecordsPartition(partition_index=0, offset=1)]
                )
            ]
        ),
        lambda r: [(p.error_code, None) for t in r.topics for p in t.partitions],
    ),
    partitions.CREATE_PARTITIONS: (
        lambda: partitions.CreatePartitionsRequest(
            topics=[partitions.CreatePartitionsTopic(name="a", count=9, assignments=None)]
        ),
        lambda r: [(t.error_code, t.error_message) for t in r.results],
    ),
    transactions.ADD_PARTITIONS_TO_TXN: (
        lambda: transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name="a", partitions=[0, 1])],
        ),
        lambda r: [
            (r.error_code, None),
            *(
                (p.partition_error_code, None)
                for t in r.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ),
        ],
    ),
    legacy.ALTER_CONFIGS: (
        lambda: legacy.AlterConfigsRequest(
            resources=[legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="a")]
        ),
        lambda r: [(each.error_code, each.error_message) for each in r.responses],
    ),
    incremental.INCREMENTAL_ALTER_CONFIGS: (
        lambda: incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(resource_type=kind, resource_name="1")
                for kind in (BROKER, GROUP)
            ]
        ),
        lambda r: [(each.error_code, each.error_message) for each in r.responses],
    ),
}


def test_there_is_a_case_for_each_refusal() -> None:
    handlers: Any = dict.fromkeys(CASES)
    assert set(refusals("b", handlers)) == set(CASES)


@pytest.mark.parametrize("api", CASES, ids=lambda api: api.name)
def test_refused_in_all_versions(client: RawClient, api: Api[Any, Any]) -> None:
    make, results_of = CASES[api]
    for version in every_version(api):
        if api is transactions.ADD_PARTITIONS_TO_TXN and version > 3:
            break  # for brokers
        request: Struct = make()
        found = results_of(client.call(api, version, request))
        assert found, version
        for code, message in found:
            if api is transactions.ADD_PARTITIONS_TO_TXN and (code, message) == (0, None):
                continue  # the field of later versions
            assert code == ErrorCode.POLICY_VIOLATION, version
            assert message in (None, REASON)


def test_configs_of_groups_change(client: RawClient) -> None:
    resource = incremental.AlterConfigsResource(
        resource_type=GROUP,
        resource_name="workers",
        configs=[incremental.AlterableConfig(name="share.auto.offset.reset", value="earliest")],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = client.call(incremental.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert result.error_code == ErrorCode.NONE


def test_a_producer_without_acks_is_disconnected(client: RawClient) -> None:
    with client.another() as another:
        another.send(produce.PRODUCE, 9, produced(acks=0), answered=False)
        assert another.is_closed()
