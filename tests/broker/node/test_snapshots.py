"""Snapshots of the metadata log: taken, loaded at start, and installed where a node is too far behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import BROKER, TOPIC
from penstock.model.errors import ErrorCode
from penstock.net.peer_errors import PeerLost
from penstock.raft.messages import Request, Response
from penstock.storage.memory import MemoryFiles
from penstock.wire.metadata_records import PartitionRecord
from tests.broker.large_topics import topic_image
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topic_configs import alter
from tests.broker.topics import create

#: a snapshot after almost every change
_SMALL = {"metadata.log.max.record.bytes.between.snapshots": "500"}


def snapshots(nodes: Cluster, node: int) -> list[str]:
    path = nodes[node].stages.cluster.node.log.log.path
    return [name for name in nodes.disks[node].listdir(path) if name.endswith(".checkpoint")]


async def make_topics(nodes: Cluster, through: int, count: int) -> set[str]:
    names = {f"topic-{n}" for n in range(count)}
    for name in sorted(names):
        assert await create(nodes, through, name) == ErrorCode.NONE
    return names


def test_every_node_takes_snapshots_and_the_log_starts_behind_them() -> None:
    async def main() -> None:
        async with cluster(3, config=_SMALL) as nodes:
            await make_topics(nodes, 1, 8)
            for node, broker in nodes.brokers.items():
                log = broker.stages.cluster.node.log
                await eventually(lambda log=log: log.snapshot is not None and log.start_offset > 0)
                await eventually(lambda node=node: len(snapshots(nodes, node)) == 1)

    run(main())


def test_a_snapshot_of_many_partitions_is_collected_in_slices() -> None:
    """With 20,000 partitions the loop was held for 21 ms."""

    async def main() -> None:
        async with cluster(
            1, config={"metadata.log.max.record.bytes.between.snapshots": "100000000"}
        ) as nodes:
            node = nodes[1].stages.cluster.node
            await make_topics(nodes, 1, 1)
            nodes[1].stages.cluster.image.topics["large"] = topic_image("large", 10_000)
            steps = node._progressed(node.loader.applied, 100_000_000)
            assert steps is not None
            assert node._snapshots._task is None
            assert sum(1 for _ in steps) >= 10
            await eventually(lambda: node.log.snapshot is not None)
            point = node.log.snapshot
            assert point is not None
            assert snapshots(nodes, 1)
            partitions = [r for r in node.log.snapshots.records(point) if isinstance(r, PartitionRecord)]
            assert len(partitions) == 10_001

    run(main())


def test_a_cluster_comes_back_from_snapshots() -> None:
    async def main() -> None:
        async with cluster(3, config=_SMALL) as nodes:
            names = await make_topics(nodes, 2, 8)
            await eventually(lambda: all(b.stages.cluster.node.log.snapshot for b in nodes.brokers.values()))
            await nodes.stop()
            await nodes.start()
            for broker in nodes.brokers.values():
                assert broker.stages.cluster.node.log.start_offset > 0
                assert set(broker.stages.cluster.image.topics) == names

    run(main())


@pytest.mark.parametrize("observers", [0, 1])
def test_a_node_whose_place_in_the_log_is_gone_gets_a_snapshot(observers: int) -> None:
    """A voter that was away, or an observer that has just come: the leader's log starts behind them."""

    async def main() -> None:
        async with cluster(3, observers=observers, config=_SMALL) as nodes:
            controller = await nodes.settled()
            behind = next(n for n in reversed(list(nodes.brokers)) if n != controller.stages.config.node_id)
            await nodes.kill(behind)
            if observers:
                nodes.disks[behind] = MemoryFiles()
            names = await make_topics(nodes, controller.stages.config.node_id, 8)
            log = controller.stages.cluster.node.log
            await eventually(lambda: log.start_offset > 8)
            await nodes.start(behind)
            assert set(nodes[behind].stages.cluster.image.topics) == names
            assert nodes[behind].stages.cluster.node.log.start_offset > 0

    run(main())


@contextmanager
def cut_off(broker: Broker) -> Iterator[None]:
    """A running node that the others do not hear, and that does not hear them, of the metadata."""
    quorum = broker.stages.cluster.node.quorum
    send = quorum._send

    async def lose(to: int, request: Request) -> Response:
        raise PeerLost("cut off")

    quorum._send = lose
    yield
    quorum._send = send


def test_a_running_node_that_installs_a_snapshot_follows_all_that_it_missed() -> None:
    async def main() -> None:
        async with cluster(3, config=_SMALL) as nodes:
            controller = await nodes.settled()
            behind = next(n for n in nodes.brokers if n != controller.stages.config.node_id)
            loader = nodes[behind].stages.cluster.node.loader
            reported: list[str] = []
            follow = loader.on_applied

            async def listen(records: object) -> None:
                assert isinstance(records, list)
                reported.extend(type(record).__name__ for record in records)
                await follow(records)

            loader.on_applied = listen
            with cut_off(nodes[behind]):
                names = await make_topics(nodes, controller.stages.config.node_id, 8)
                await eventually(lambda: controller.stages.cluster.node.log.start_offset > loader.applied)
            await eventually(lambda: set(nodes[behind].stages.cluster.image.topics) == names)
            await eventually(lambda: "TopicRecord" in reported)
            assert nodes[behind].stages.cluster.image is loader.image

    run(main())


def test_a_running_node_that_installs_a_snapshot_forgets_configs_that_it_no_longer_has() -> None:
    """Its records lack the removed configs: a node that kept the old ones would delete by them."""

    async def main() -> None:
        async with cluster(3, config=_SMALL) as nodes:
            controller = await nodes.settled()
            through = controller.stages.config.node_id
            behind = nodes[next(n for n in nodes.brokers if n != through)]
            assert await create(nodes, through, "kept", factor=3) == ErrorCode.NONE
            await eventually(lambda: isinstance(behind.stages.storage.partitions.find("kept", 0), Partition))
            partition = behind.stages.storage.partitions.find("kept", 0)
            assert isinstance(partition, Partition)
            kept_ms, default_ms = partition.log.config.retention_ms, behind.stages.config["log.retention.ms"]
            await alter(nodes, through, TOPIC, "kept", "retention.ms", "1")
            await alter(nodes, through, BROKER, "", "log.retention.ms", "2")
            await eventually(lambda: partition.log.config.retention_ms == 1)
            await eventually(lambda: behind.stages.config["log.retention.ms"] == 2)
            with cut_off(behind):
                await alter(nodes, through, TOPIC, "kept", "retention.ms", None)
                await alter(nodes, through, BROKER, "", "log.retention.ms", None)
                await make_topics(nodes, through, 8)
                await eventually(
                    lambda: (
                        controller.stages.cluster.node.log.start_offset
                        > behind.stages.cluster.node.loader.applied
                    )
                )
            await eventually(lambda: "topic-7" in behind.stages.cluster.image.topics)
            await eventually(lambda: behind.stages.config["log.retention.ms"] == default_ms)
            await eventually(lambda: partition.log.config.retention_ms == kept_ms)

    run(main())
