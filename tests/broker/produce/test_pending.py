"""Requests of several batches that wait for replicas; those of one are in `test_leadership`."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.nodes import Cluster, cluster, run
from tests.broker.replication import TOPIC, make_topic, replica, stop_fetching
from tests.broker.requests import batch_of


async def produce_two(nodes: Cluster, timeout_ms: int = 10_000) -> list[PartitionProduceResponse]:
    """Two batches for the same partition in one request."""
    values = (b"first", b"second")
    batches = [PartitionProduceData(index=0, records=memoryview(batch_of([value]))) for value in values]
    topic = TopicProduceData(topic_id=nodes[1].stages.cluster.image.topics[TOPIC].id, partition_data=batches)
    request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
    (answered,) = (await nodes.call(1, PRODUCE, request)).responses
    return answered.partition_responses


def test_several_batches_are_acknowledged_together_when_all_are_committed() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            answers = await produce_two(nodes)
            assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 1)]
            assert [replica(nodes[n]).log.end_offset for n in (1, 2)] == [2, 2]

    run(main())


def test_each_of_several_late_batches_times_out() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            answers = await produce_two(nodes, timeout_ms=50)
            assert [a.error_code for a in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    run(main())
