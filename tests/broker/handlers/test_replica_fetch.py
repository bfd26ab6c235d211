"""Fetch as a follower asks it, told to a real leader by a follower of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.net.deferred import Deferred
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages import decode_response, encode_request
from tests.broker.nodes import Cluster, cluster, run
from tests.broker.replication import make_topic, produce, stop_fetching

TOPICS = ("busy", "quiet")
LARGE = b"x" * 3000


def fetch_as_follower(
    nodes: Cluster,
    offset: int | dict[str, int],
    session: int = 0,
    epoch: int = 0,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
) -> FetchResponse:
    """What broker 1 answers at once to broker 2, which has the first `offset` records of each topic."""
    offsets = dict.fromkeys(TOPICS, offset) if isinstance(offset, int) else offset
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session,
        session_epoch=epoch,
        replica_state=ReplicaState(replica_id=2, replica_epoch=nodes[2].broker_epoch),
        topics=[
            FetchTopic(
                topic_id=nodes[1].image.topics[name].id,
                partitions=[
                    FetchPartition(
                        current_leader_epoch=0,
                        fetch_offset=at,
                        last_fetched_epoch=0 if at else -1,
                        log_start_offset=0,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for name, at in offsets.items()
        ],
    )
    frame = b"".join(map(bytes, encode_request(FETCH, FETCH.max_version, 7, "follower", request)))[4:]  # type: ignore[arg-type]
    dispatcher = nodes[1].internal_dispatcher
    assert dispatcher is not None
    connection: Any = SimpleNamespace(memo=None, peer="follower", listener=None)
    answer = dispatcher.serve(connection, memoryview(frame))
    assert answer is not None and not isinstance(answer, Deferred)
    written = b"".join(bytes(p) if isinstance(p, bytes | memoryview) else p.read() for p in answer)  # type: ignore[union-attr]
    return decode_response(FETCH, FETCH.max_version, memoryview(written)[4:])


def by_topic(nodes: Cluster, response: FetchResponse) -> dict[str, PartitionData]:
    names = {bytes(nodes[1].image.topics[name].id): name for name in TOPICS}
    return {names[topic.topic_id]: topic.partitions[0] for topic in response.responses}


def test_the_high_watermark_of_a_quiet_partition_comes_beside_the_records_of_a_busy_one() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            for name in TOPICS:
                await make_topic(nodes, 1, 2, name=name)
            await stop_fetching(nodes[2])
            for name in TOPICS:
                await produce(nodes, 1, b"a", acks=1, name=name)
            first = fetch_as_follower(nodes, 0)
            assert by_topic(nodes, first).keys() == set(TOPICS)
            await produce(nodes, 1, b"b", acks=1, name="busy")

            reported = by_topic(nodes, fetch_as_follower(nodes, 1, first.session_id, 1))

            assert reported["busy"].records
            assert (reported["quiet"].high_watermark, reported["quiet"].records) == (1, b"")

    run(main())


@pytest.mark.parametrize("limits", [(1000, 1 << 20), (1 << 20, 4000)])
def test_a_follower_gets_no_part_of_a_batch_and_each_partition_in_turn(limits: tuple[int, int]) -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            for name in TOPICS:
                await make_topic(nodes, 1, 2, name=name)
            await stop_fetching(nodes[2])
            for _ in range(4):
                for name in TOPICS:
                    await produce(nodes, 1, LARGE, acks=1, name=name)
            changed = dict.fromkeys(TOPICS, 0)
            offsets, session = dict(changed), 0
            served: list[str] = []
            for epoch in range(6):
                answer = fetch_as_follower(nodes, changed, session, epoch, *limits)
                session = answer.session_id
                reported = by_topic(nodes, answer)
                sizes = {name: len(data.records) for name, data in reported.items() if data.records}
                assert all(size >= len(LARGE) for size in sizes.values())
                served += sizes
                for name in sizes:
                    offsets[name] += 1
                changed = {name: offsets[name] for name in sizes}
            assert served == [*TOPICS] * 3

    run(main())
