"""Controlled shutdown: leaders move away, and a stop waits for no node that is gone."""

from __future__ import annotations

import asyncio
import errno

import pytest

from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.storage.manifest import Registration
from tests.broker.disks import Disk
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, make_topic
from tests.broker.topics import create


def others(nodes: Cluster, *without: int) -> list[int]:
    return [node for node in nodes.brokers if node not in without]


def test_leaders_move_away_before_a_broker_stops() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            leaving = others(nodes, controller.stages.config.node_id)[0]
            assert await create(nodes, leaving, "topic", factor=3) == ErrorCode.NONE
            partition = controller.stages.cluster.image.topics["topic"].partitions[0]
            epoch = nodes[leaving].stages.cluster.node.broker_epoch
            await nodes.stop(leaving)
            assert controller.stages.cluster.image.brokers[leaving].fenced
            assert partition.leader not in (leaving, -1) and leaving not in partition.isr
            await nodes.start(leaving)
            assert nodes[leaving].stages.cluster.node.broker_epoch > epoch

    run(main())


def test_the_controllers_node_hands_both_of_its_parts_over() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            first = await nodes.settled()
            assert await create(nodes, first.stages.config.node_id, "topic", factor=3) == ErrorCode.NONE
            await nodes.stop(first.stages.config.node_id)
            second = await nodes.settled()
            assert second.stages.cluster.image.brokers[first.stages.config.node_id].fenced
            assert second.stages.cluster.image.topics["topic"].partitions[0].leader in nodes.brokers

    run(main())


def test_the_last_node_of_a_cluster_that_is_stopped_does_not_wait_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.broker.app.broker._HANDOVER_S", 120)

    async def main() -> None:
        # Nor for the answer to a heartbeat that it sent before, as long as a session may last.
        async with cluster(3) as nodes:
            await nodes.settled()
            for node in (1, 2):
                await nodes.stop(node)
            async with asyncio.timeout(60):
                await nodes.stop(3)

    run(main())


def test_a_node_that_stops_when_the_majority_is_gone_waits_for_no_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.broker.app.broker._HANDOVER_S", 3600)
    monkeypatch.setattr("penstock.broker.app.lifecycle._SHUTDOWN_PATIENCE_S", 3600)

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = (await nodes.settled()).stages.config.node_id
            last, other = others(nodes, controller)
            for node in (other, controller):
                await nodes.kill(node)
            await eventually(lambda: nodes[last].stages.cluster.node.quorum.state.majority_gone)
            async with asyncio.timeout(60):
                await nodes.stop(last)

    run(main())


def test_a_broker_that_stops_follows_no_leader_that_is_elected_meanwhile() -> None:
    """The fetcher of a new leader would have gone on for as long as the process."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await nodes[3].stages.replication.replicas.stop()
            before = list(nodes[3].stages.replication.replicas.fetchers)
            await nodes.stop(1)
            await eventually(lambda: described(nodes[3]).leader == 2)
            applied = nodes[2].stages.cluster.node.loader.applied
            await eventually(lambda: nodes[3].stages.cluster.node.loader.applied >= applied)
            assert list(nodes[3].stages.replication.replicas.fetchers) == before

    run(main())


def test_a_clean_stop_is_remembered_by_its_epoch_and_an_unclean_one_is_not() -> None:
    """KIP-966: only a replica that was shut down cleanly stays eligible."""

    async def main() -> None:
        async with cluster(3) as nodes:
            for end, remembered in ((nodes.stop, True), (nodes.kill, False)):
                last = nodes[1].stages.cluster.node.broker_epoch
                await end(1)
                await nodes.start(1)
                assert nodes[1].stages.storage.partitions.previous_registration.epoch == (
                    last if remembered else -1
                )

    run(main())


def test_a_broker_stops_though_its_disk_takes_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        disk = nodes.disks[1] = Disk()
        close = Partitions.close

        async def fail(partitions: Partitions, registration: Registration) -> None:
            disk.sync_error = errno.EIO
            await close(partitions, registration)

        try:
            await nodes.start()
            last = nodes[1].stages.cluster.node.broker_epoch
            with monkeypatch.context() as failing:
                failing.setattr(Partitions, "close", fail)
                await nodes.stop(1)
            disk.sync_error = None
            await nodes.start(1)
            assert nodes[1].stages.cluster.node.broker_epoch > last
            assert nodes[1].stages.storage.partitions.previous_registration.epoch == -1
        finally:
            await nodes.close()

    run(main())
