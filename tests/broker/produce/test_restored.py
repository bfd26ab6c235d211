"""Batches of a restore, which the leader appends at the offsets that they have."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.produce.restored import RestoredAppends
from penstock.model.errors import ErrorCode
from penstock.records.record import iter_batches
from penstock.storage.log import Log
from penstock.wire.apis.produce import (
    PRODUCE,
    RESTORED_ACKS,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    RestoredPart,
    TopicProduceData,
)
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC, make_topic, replica, stored
from tests.broker.requests import batch_of

RESTORING = {"penstock.restoring": "true"}


def batches_at(*offsets: int, **header: Any) -> bytes:
    """Batches of one record each."""
    return b"".join(_placed(n, **header) for n in offsets)


def _placed(offset: int, **header: Any) -> bytes:
    batch = bytearray(batch_of([b"%d" % offset], **header))
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


async def send(
    nodes: Cluster, records: bytes, next_offset: int, *, is_first: bool = False, log_start: int = -1
) -> PartitionProduceResponse:
    part = RestoredPart(next_offset=next_offset, is_first=is_first, log_start_offset=log_start)
    request = request_of(nodes[1].stages.cluster.image.topics[TOPIC].id, records, part)
    (answered,) = (await nodes.call(1, PRODUCE, request)).responses
    return answered.partition_responses[0]


def request_of(topic_id: bytes, records: bytes, part: RestoredPart | None) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(records) if records else None)
    topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=RESTORED_ACKS, timeout_ms=10_000, topic_data=[topic], restored=part)


def test_batches_keep_their_offsets_on_all_replicas() -> None:
    """The log starts where the backup does, and has the gaps that compaction has left."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2, configs=RESTORING)
            answers = [
                await send(nodes, b"", 100, is_first=True),
                await send(nodes, batches_at(100, 105), 100),
                await send(nodes, batches_at(200), 106),
                await send(nodes, b"", 201, log_start=103),
            ]
            assert [(each.error_code, each.base_offset) for each in answers] == [
                (0, 100), (0, 106), (0, 201), (0, 201),
            ]  # fmt: skip
            for node in (1, 2):
                log, epoch = replica(nodes[node]).log, replica(nodes[node]).leader_epoch
                await eventually(partial(_has_watermarks, log, 103, 201))
                found = [
                    (b.base_offset, b.leader_epoch) for _, b in iter_batches(stored(replica(nodes[node])))
                ]
                assert found == [(105, epoch), (200, epoch)]

    run(main())


def _has_watermarks(log: Log, log_start_offset: int, high_watermark: int) -> bool:
    return (log.log_start_offset, log.high_watermark) == (log_start_offset, high_watermark)


def test_a_request_that_is_repeated_or_comes_out_of_order_changes_nothing() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2, configs=RESTORING)
            assert (await send(nodes, b"", 10, is_first=True)).error_code == 0
            assert (await send(nodes, batches_at(10, 11), 10)).error_code == 0
            for records, next_offset, is_first in (
                (batches_at(10, 11), 10, False),  # repeated
                (batches_at(20), 20, False),  # records are missing
                (b"", 50, True),  # a restore that starts again
                (b"", 5, True),
            ):
                answer = await send(nodes, records, next_offset, is_first=is_first)
                assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert answer.base_offset == 12
            log = replica(nodes[1]).log
            assert (log.log_start_offset, log.end_offset) == (10, 12)

    run(main())


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (batches_at(9), ErrorCode.CORRUPT_MESSAGE),
        (batches_at(11, 10), ErrorCode.CORRUPT_MESSAGE),
        (batches_at(10)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batches_at(10)[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (batches_at(10) + b"\0" * 20, ErrorCode.CORRUPT_MESSAGE),
        (batches_at(*range(10, 1011)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_damaged_and_large_requests_are_refused(records: bytes, code: ErrorCode) -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            await make_topic(nodes, 1, configs=RESTORING, min_isr=1)
            assert (await send(nodes, b"", 10, is_first=True)).error_code == 0
            assert (await send(nodes, records, 10)).error_code == code
            assert replica(nodes[1]).log.end_offset == 10

    run(main())


def test_an_ordinary_topic_is_refused() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            await make_topic(nodes, 1, min_isr=1)
            assert (await send(nodes, batches_at(0), 0)).error_code == ErrorCode.POLICY_VIOLATION
            request = request_of(nodes[1].stages.cluster.image.topics[TOPIC].id, batches_at(0), None)
            (answered,) = (await nodes.call(1, PRODUCE, request)).responses
            assert answered.partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert replica(nodes[1]).log.end_offset == 0

    run(main())


def test_a_restore_needs_cluster_action() -> None:
    access: Any = SimpleNamespace(allows_on_cluster=lambda context, operation: False)
    context: Any = None
    appends = RestoredAppends(lambda topic, index: ErrorCode.NOT_LEADER_OR_FOLLOWER, access)
    part = RestoredPart(next_offset=0)
    response: Any = appends(context, request_of(b"i" * 16, batches_at(0), part), part)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
