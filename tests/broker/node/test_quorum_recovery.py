"""The way back after the quorum was lost: `penstock quorum recover` and `rejoin`, on the disks of nodes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.base.system_ports import OsFiles, SystemClock, SystemRng
from penstock.broker.node.metadata_home import MetadataRefused
from penstock.broker.node.quorum_recovery import RecoveryRefused, recover, rejoin
from penstock.cli.app import app
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.storage.manifest import Manifest
from penstock.storage.memory import MemoryFiles
from tests.broker.events import Events
from tests.broker.metadata_damage import (
    METADATA,
    disk,
    fails,
    flip,
    tree,
)
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, led_by, make_topic, produce, replica
from tests.broker.topics import create

CLOCK, RNG = SystemClock(), SystemRng()
MANIFEST = "/data/clean-shutdown"


def voters(nodes: Cluster) -> list[int]:
    controller = nodes.controller
    return [] if controller is None else [voter.key.id for voter in controller.node.quorum.state.voters]


async def all_vote(nodes: Cluster) -> None:
    await eventually(lambda: voters(nodes) == [1, 2, 3])
    await nodes.settled()
    # On all nodes: a leader that dies before the others have the voters leaves them without a majority.
    known = [broker.node.quorum.node for broker in nodes.brokers.values()]
    keys = {broker.node.key for broker in nodes.brokers.values()}
    await eventually(lambda: all({voter.key for voter in node.quorum.voters} == keys for node in known))


def test_a_quorum_comes_back_from_one_voter_of_three() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            for node in (1, 2):
                nodes.disks[node] = MemoryFiles()
            done = recover(disk(nodes, 3), ["/data"], CLOCK, RNG)
            assert done.node_id == 3 and done.damage is None
            assert disk(nodes, 3).exists(f"{done.backup}/quorum-state")
            await nodes.start(3)
            assert voters(nodes) == [3] and "orders" in nodes[3].image.topics
            await nodes.start(1, 2)
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.image: "orders" in image.topics)
            assert await create(nodes, 1, "invoices", factor=3) == ErrorCode.NONE

    run(main())


def test_voters_that_were_rolled_back_join_the_one_that_was_not() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            old = {node: deepcopy(disk(nodes, node)) for node in (1, 2)}
            await nodes.start()
            assert await create(nodes, 1, "invoices", factor=3) == ErrorCode.NONE
            await nodes.stop()
            nodes.disks.update(old)
            await nodes.start(1, 2)
            await nodes.stop()
            recover(disk(nodes, 3), ["/data"], CLOCK, RNG)
            for node in (1, 2):
                assert rejoin(disk(nodes, node), ["/data"], RNG).node_id == node
            await nodes.start()
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.image: {"orders", "invoices"} <= set(image.topics))
            await all_vote(nodes)
            await nodes.kill(3)
            await nodes.settled()
            assert await create(nodes, 1, "without-3") == ErrorCode.NONE

    run(main())


def test_an_epoch_that_rolled_back_voters_have_given_again_is_no_proof() -> None:
    """The registration with that epoch in the recovered metadata had records that the disk does not have."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await nodes.stop()
            old = {node: deepcopy(disk(nodes, node)) for node in (1, 2)}
            await nodes.start()
            await eventually(lambda: len(described(nodes[1]).isr) == 3)
            leader = described(nodes[1]).leader
            await led_by(nodes, leader)
            assert (await produce(nodes, leader, b"new")).error_code == ErrorCode.NONE
            epochs = {node: nodes[node].broker_epoch for node in (1, 2)}
            await nodes.stop_in_turn(3, 2, 1)
            nodes.disks.update(old)
            await nodes.start(1, 2)
            await nodes.stop()
            for node, epoch in epochs.items():
                manifest = Manifest.decode(disk(nodes, node).read(MANIFEST))
                again = manifest.registration._replace(epoch=epoch)
                disk(nodes, node).write_atomic(MANIFEST, manifest._replace(registration=again).encode())
                rejoin(disk(nodes, node), ["/data"], RNG)
            recover(disk(nodes, 3), ["/data"], CLOCK, RNG)
            await nodes.start()
            await led_by(nodes, 3)
            assert replica(nodes[3]).log.end_offset == 1

    run(main())


def test_the_loss_of_every_quorum_state_is_no_loss_of_metadata() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            for node in (1, 2, 3):
                disk(nodes, node).remove(f"{METADATA}/quorum-state")
            assert len(await fails(nodes, 1, 2, 3)) == 3
            recover(disk(nodes, 2), ["/data"], CLOCK, RNG)
            for node in (1, 3):
                rejoin(disk(nodes, node), ["/data"], RNG)
            await nodes.start()
            await all_vote(nodes)
            assert "orders" in nodes[1].image.topics

    run(main())


def test_one_lost_quorum_state_heals_by_itself() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            keys = {node: broker.node.key for node, broker in nodes.brokers.items()}
            await nodes.stop()
            disk(nodes, 2).remove(f"{METADATA}/quorum-state")
            await nodes.start()
            await all_vote(nodes)
            assert nodes[2].node.key != keys[2] and nodes[1].node.key == keys[1]

    run(main())


def test_a_damaged_quorum_state_beside_a_damaged_log_heals_by_itself(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            keys = {node: broker.node.key for node, broker in nodes.brokers.items()}
            await nodes.stop()
            flip(disk(nodes, 2))
            flip(disk(nodes, 2), f"{METADATA}/quorum-state")
            await nodes.start()
            await all_vote(nodes)
            assert nodes[2].node.key != keys[2] and nodes[1].node.key == keys[1]
            assert set(nodes[2].image.topics) == {"orders"}
            assert len(events.of("vote_lost")) == len(events.of("metadata_damaged")) == 1

    run(main())


def test_a_damaged_log_of_a_lone_broker_is_cut_only_on_request() -> None:
    async def main() -> None:
        nodes = Cluster([1])
        try:
            await nodes.start()
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            end = nodes[1].node.log.end_offset
            segment = max(name for name in disk(nodes, 1).listdir(METADATA) if name.endswith(".log"))
            position = disk(nodes, 1).size(f"{METADATA}/{segment}")
            assert await create(nodes, 1, "invoices") == ErrorCode.NONE
            await nodes.stop()
            flip(disk(nodes, 1), f"{METADATA}/{segment}", position + 40)
            with pytest.raises(MetadataRefused, match="penstock quorum recover"):
                await nodes.start()
            done = recover(disk(nodes, 1), ["/data"], CLOCK, RNG)
            assert done.damage is not None and f"offset {end}" in done.damage
            await nodes.start()
            assert set(nodes[1].image.topics) == {"orders"}
            kept = tree(disk(nodes, 1), "/data/quarantine")
            assert any("invoices" in name for name in kept), "a stray is set aside, not deleted"
        finally:
            await nodes.close()

    run(main())


def test_the_commands_work_on_a_real_data_directory(tmp_path: Path) -> None:
    config = BrokerConfig(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data"), "node.id": "1"}
    )

    async def once() -> None:
        broker = await Broker.open(config, system_world(config)._replace(files=OsFiles()))
        await broker.start()
        with pytest.raises(RecoveryRefused, match="stop its broker first"):
            recover(OsFiles(), [str(tmp_path / "data")], CLOCK, RNG)
        await broker.stop()

    run(once())
    runner = CliRunner()
    result = runner.invoke(app, ["quorum", "recover", "--yes", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    assert "node 1 is the only voter" in result.output and "metadata-backup-1" in result.output
    run(once())
    result = runner.invoke(app, ["quorum", "rejoin", "--yes", str(tmp_path / "data")])
    assert result.exit_code == 0 and "metadata-backup-2" in result.output
    result = runner.invoke(app, ["quorum", "recover", str(tmp_path / "data")], input="n\n")
    assert result.exit_code == 1
