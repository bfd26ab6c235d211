"""Fetches of a follower: the test's own follower sends them to a real leader."""

from __future__ import annotations

from tests.broker.follower_fetches import TOPICS, by_topic, fetch_as_follower
from tests.broker.nodes import cluster, run
from tests.broker.replication import make_topic, produce, stop_fetching


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
