"""A cluster whose brokers count from 0: broker 0 votes, leads and controls like any other."""

from __future__ import annotations

from penstock.metadata.topics import NewTopic
from tests.broker.nodes import Cluster, eventually, run


async def _make_controller(nodes: Cluster, wanted: int) -> None:
    while (active := (await nodes.settled()).stages.config.node_id) != wanted:
        await nodes.kill(active)
        await nodes.settled()
        await nodes.start(active)


def test_broker_0_votes_leads_and_controls() -> None:
    async def scenario() -> None:
        nodes = Cluster([0, 1, 2])
        try:
            await nodes.start()
            await _make_controller(nodes, 0)
            await nodes[0].stages.cluster.topics.create(NewTopic("t", partitions=6, replication_factor=3))
            partitions = nodes[0].stages.cluster.image.topics["t"].partitions.values()
            await eventually(lambda: all(len(p.isr) == 3 for p in partitions))
            assert {p.leader for p in partitions} == {0, 1, 2}
            await nodes.kill(1)
            await eventually(lambda: {p.leader for p in partitions} == {0, 2})
            await eventually(
                lambda: nodes[2].stages.cluster.image.offset == nodes[0].stages.cluster.image.offset
            )
            assert nodes[2].stages.cluster.node.leader_id == 0
        finally:
            await nodes.close()

    run(scenario())
