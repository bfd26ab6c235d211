"""The bytes of a follower fetch."""

from __future__ import annotations

import pytest

from tests.broker.follower_fetches import TOPICS, by_topic, fetch_as_follower
from tests.broker.nodes import cluster, run
from tests.broker.replication import make_topic, produce, stop_fetching

LARGE = b"x" * 3000


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
