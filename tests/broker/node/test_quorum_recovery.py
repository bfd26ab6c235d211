"""The way back after the quorum was lost: `penstock quorum recover` and `rejoin`, on the disks of nodes."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.base.system_ports import OsFiles, SystemClock, SystemRng
from penstock.broker.node.metadata_home import MetadataRefused
from penstock.broker.node.quorum_recovery import RecoveryRefused, Source, _Node, recover, rejoin
from penstock.cli.app import app
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.records.batch import read_header
from penstock.storage.manifest import Manifest
from penstock.storage.memory import MemoryFiles
from tests.broker.events import Events
from tests.broker.metadata_damage import (
    METADATA,
    SEGMENT,
    disk,
    fails,
    flip,
    tree,
)
from tests.broker.metadata_logs import positions
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, led_by, make_topic, produce, replica
from tests.broker.topics import create

CLOCK, RNG = SystemClock(), SystemRng()
MANIFEST = "/data/clean-shutdown"
QUORUM_STATE = f"{METADATA}/quorum-state"


def voters(nodes: Cluster) -> list[int]:
    controller = nodes.controller
    return (
        []
        if controller is None
        else [voter.key.id for voter in controller.stages.cluster.node.quorum.state.voters]
    )


def sources(nodes: Cluster, *others: int) -> list[Source]:
    return [Source(disk(nodes, node), ["/data"]) for node in others]


async def all_vote(nodes: Cluster) -> None:
    await eventually(lambda: voters(nodes) == [1, 2, 3])
    await nodes.settled()
    # On all nodes: a leader that dies before the others have the voters leaves them without a majority.
    known = [broker.stages.cluster.node.quorum.node for broker in nodes.brokers.values()]
    keys = {broker.stages.cluster.node.key for broker in nodes.brokers.values()}
    await eventually(lambda: all({voter.key for voter in node.quorum.voters} == keys for node in known))


def test_a_quorum_comes_back_from_one_voter_of_three() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            for node in (1, 2):
                nodes.disks[node] = MemoryFiles()
            with pytest.raises(RecoveryRefused, match=r"voters 1, 2 may have .* \(--without 1 --without 2\)"):
                recover(disk(nodes, 3), ["/data"], CLOCK, RNG)
            done = recover(disk(nodes, 3), ["/data"], CLOCK, RNG, without=[1, 2])
            assert done.node_id == 3 and len(done.report) == 1
            assert disk(nodes, 3).exists(f"{done.backup}/quorum-state")
            await nodes.start(3)
            assert voters(nodes) == [3] and "orders" in nodes[3].stages.cluster.image.topics
            await nodes.start(1, 2)
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.stages.cluster.image: "orders" in image.topics)
            assert await create(nodes, 1, "invoices", factor=3) == ErrorCode.NONE

    run(main())


def test_rolled_back_voters_join_the_intact_one() -> None:
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
            with pytest.raises(RecoveryRefused, match="gone on with different metadata"):
                recover(disk(nodes, 3), ["/data"], CLOCK, RNG, others=sources(nodes, 1, 2))
            recover(disk(nodes, 3), ["/data"], CLOCK, RNG, without=[1, 2])
            for node in (1, 2):
                assert rejoin(disk(nodes, node), ["/data"], RNG).node_id == node
            await nodes.start()
            for broker in nodes.brokers.values():
                await eventually(
                    lambda image=broker.stages.cluster.image: {"orders", "invoices"} <= set(image.topics)
                )
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
            epochs = {node: nodes[node].stages.cluster.node.broker_epoch for node in (1, 2)}
            await nodes.stop_in_turn(3, 2, 1)
            nodes.disks.update(old)
            await nodes.start(1, 2)
            await nodes.stop()
            for node, epoch in epochs.items():
                manifest = Manifest.decode(disk(nodes, node).read(MANIFEST))
                again = manifest.registration._replace(epoch=epoch)
                disk(nodes, node).write_atomic(MANIFEST, manifest._replace(registration=again).encode())
                rejoin(disk(nodes, node), ["/data"], RNG)
            recover(disk(nodes, 3), ["/data"], CLOCK, RNG, without=[1, 2])
            await nodes.start()
            await led_by(nodes, 3)
            assert replica(nodes[3]).log.end_offset == 1

    run(main())


def roll_back_votes(nodes: Cluster, old: dict[int, bytes]) -> None:
    for node, state in old.items():
        disk(nodes, node).write_atomic(QUORUM_STATE, state)


def votes(nodes: Cluster) -> dict[int, bytes]:
    return {node: disk(nodes, node).read(QUORUM_STATE) for node in (1, 2, 3)}


@pytest.mark.parametrize("lost", [(1, 2), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("how", ["rolled back", "removed", "damaged", "one of each"])
def test_voters_that_forgot_their_votes_elect_a_leader_when_all_are_there(
    lost: tuple[int, ...], how: str, events: Events
) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.stop()
            old = votes(nodes)
            await nodes.start()
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            keys = {node: broker.stages.cluster.node.key for node, broker in nodes.brokers.items()}
            await nodes.stop()
            ways = ("rolled back", "removed", "damaged") if how == "one of each" else (how,) * 3
            for node, way in zip(lost, ways, strict=False):
                match way:
                    case "rolled back":
                        roll_back_votes(nodes, {node: old[node]})
                    case "removed":
                        disk(nodes, node).remove(QUORUM_STATE)
                    case "damaged":
                        flip(disk(nodes, node), QUORUM_STATE)
            first = [node for node in (1, 2, 3) if node != lost[0]]
            assert len(await fails(nodes, *first)) == 2, "a majority is not enough"
            await nodes.start()
            await all_vote(nodes)
            assert "orders" in nodes[1].stages.cluster.image.topics
            assert {node: broker.stages.cluster.node.key for node, broker in nodes.brokers.items()} == keys
            # Each of them votes and counts again.
            await nodes.kill((await nodes.settled()).stages.config.node_id)
            controller = await nodes.settled()
            assert await create(nodes, controller.stages.config.node_id, "after", factor=2) == ErrorCode.NONE

    run(main())


def test_quorum_states_that_were_exchanged_are_noticed(events: Events) -> None:
    """Each names the directory of the other voter: with it, neither would be one."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.stop()
            # Voters that have rejoined have their directory ids in the file.
            recover(disk(nodes, 1), ["/data"], CLOCK, RNG, others=sources(nodes, 2, 3))
            for node in (2, 3):
                rejoin(disk(nodes, node), ["/data"], RNG)
            await nodes.start()
            await all_vote(nodes)
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            states = votes(nodes)
            roll_back_votes(nodes, {1: states[2], 2: states[1]})
            await nodes.start()
            await all_vote(nodes)
            lost = [fields["reason"] for _, fields in events.of("vote_lost")]
            assert [reason.rpartition(" is ")[2] for reason in sorted(lost)] == [
                "that of node 1",
                "that of node 2",
            ]
            assert "orders" in nodes[3].stages.cluster.image.topics

    run(main())


def test_one_lost_quorum_state_heals_by_itself(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            keys = {node: broker.stages.cluster.node.key for node, broker in nodes.brokers.items()}
            await nodes.stop()
            disk(nodes, 2).remove(f"{METADATA}/quorum-state")
            await nodes.start(1, 3)
            await nodes.start(2)
            await eventually(lambda: bool(events.of("voter_replaced")))
            await all_vote(nodes)
            assert nodes[2].stages.cluster.node.key != keys[2] and nodes[1].stages.cluster.node.key == keys[1]

    run(main())


def test_a_damaged_quorum_state_beside_a_damaged_log_heals_by_itself(events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            keys = {node: broker.stages.cluster.node.key for node, broker in nodes.brokers.items()}
            await nodes.stop()
            flip(disk(nodes, 2))
            flip(disk(nodes, 2), f"{METADATA}/quorum-state")
            await nodes.start()
            await all_vote(nodes)
            assert nodes[2].stages.cluster.node.key != keys[2] and nodes[1].stages.cluster.node.key == keys[1]
            assert set(nodes[2].stages.cluster.image.topics) == {"orders"}
            assert len(events.of("vote_lost")) == len(events.of("metadata_damaged")) == 1

    run(main())


def test_a_damaged_log_of_a_lone_broker_is_cut_only_on_request() -> None:
    async def main() -> None:
        nodes = Cluster([1])
        try:
            await nodes.start()
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            end = nodes[1].stages.cluster.node.log.end_offset
            segment = max(name for name in disk(nodes, 1).listdir(METADATA) if name.endswith(".log"))
            position = disk(nodes, 1).size(f"{METADATA}/{segment}")
            assert await create(nodes, 1, "invoices") == ErrorCode.NONE
            await nodes.stop()
            flip(disk(nodes, 1), f"{METADATA}/{segment}", position + 40)
            with pytest.raises(MetadataRefused, match="penstock quorum recover"):
                await nodes.start()
            with pytest.raises(RecoveryRefused, match=f"no copy has offsets {end} to .* say --up-to {end}"):
                recover(disk(nodes, 1), ["/data"], CLOCK, RNG)
            with pytest.raises(RecoveryRefused, match=f"not --up-to {end - 1}"):
                recover(disk(nodes, 1), ["/data"], CLOCK, RNG, up_to=end - 1)
            done = recover(disk(nodes, 1), ["/data"], CLOCK, RNG, up_to=end)
            assert any(f"offset {end}" in line for line in done.report)
            await nodes.start()
            assert set(nodes[1].stages.cluster.image.topics) == {"orders"}
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
    data = tmp_path / "data" / "topics" / "__cluster_metadata" / "partition-0"
    shutil.copytree(data, tmp_path / "copy")
    (segment,) = data.glob("*.log")
    log = segment.read_bytes()
    segment.write_bytes(log[:100] + bytes([log[100] ^ 1]) + log[101:])
    recovers = ["quorum", "recover", str(tmp_path / "data")]
    result = runner.invoke(app, [*recovers, "--dry-run"])
    assert result.exit_code == 0 and "the metadata is usable up to offset" in result.output
    assert result.output.count("is damaged at byte") == 1 and "nothing was changed" in result.output
    result = runner.invoke(app, [*recovers, "--yes"])
    assert result.exit_code == 1 and isinstance(result.exception, RecoveryRefused)
    result = runner.invoke(app, [*recovers, "--dry-run", "--with", f"1={tmp_path / 'copy'}"])
    assert result.exit_code == 0 and "the metadata is complete" in result.output
    segment.write_bytes(log)
    result = runner.invoke(app, ["quorum", "recover", "--yes", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    assert "node 1 is the only voter" in result.output and "metadata-backup-1" in result.output
    run(once())
    result = runner.invoke(app, ["quorum", "rejoin", "--yes", str(tmp_path / "data")])
    assert result.exit_code == 0 and "metadata-backup-2" in result.output
    result = runner.invoke(app, ["quorum", "recover", str(tmp_path / "data")], input="n\n")
    assert result.exit_code == 1


def damage_all(nodes: Cluster) -> None:
    """One bit in the metadata log of each voter, each in another batch."""
    for node in (1, 2, 3):
        log = disk(nodes, node).read(SEGMENT)
        starts = positions(log)
        flip(disk(nodes, node), SEGMENT, starts[2 + 3 * node] + 70)


@pytest.mark.parametrize("started", [True, False])
def test_voters_that_are_damaged_at_different_places_are_merged(started: bool) -> None:
    """Before, `recover` began an empty cluster, and every partition was moved to the quarantine."""

    async def main() -> None:
        async with cluster(3) as nodes:
            for name in ("orders", "invoices", "payments"):
                assert await create(nodes, 1, name, factor=3) == ErrorCode.NONE
            end = max(broker.stages.cluster.node.log.end_offset for broker in nodes.brokers.values())
            topics = {name: topic.id for name, topic in nodes[1].stages.cluster.image.topics.items()}
            await nodes.stop()
            damage_all(nodes)
            if started:
                # The brokers move their damaged logs to the quarantine, and wait for a leader.
                assert len(await fails(nodes, 1, 2, 3)) == 3
            with pytest.raises(RecoveryRefused, match="voters 2, 3 may have"):
                recover(disk(nodes, 1), ["/data"], CLOCK, RNG)
            with pytest.raises(RecoveryRefused, match="no copy has offsets"):
                recover(disk(nodes, 1), ["/data"], CLOCK, RNG, without=[2, 3])
            before = tree(disk(nodes, 1), "/data")
            both = sources(nodes, 2, 3)
            found = recover(disk(nodes, 1), ["/data"], CLOCK, RNG, others=both, dry_run=True)
            assert found.missing is None and found.end_offset >= end
            assert tree(disk(nodes, 1), "/data") == before
            done = recover(disk(nodes, 1), ["/data"], CLOCK, RNG, others=both)
            assert sum("is damaged at byte" in line for line in done.report) == 3
            assert any("is taken from node" in line for line in done.report)
            for node in (2, 3):
                rejoin(disk(nodes, node), ["/data"], RNG)
            await nodes.start()
            await all_vote(nodes)
            for broker in nodes.brokers.values():
                await eventually(
                    lambda image=broker.stages.cluster.image: (
                        {n: t.id for n, t in image.topics.items()} == topics
                    )
                )
            assert not any("orders" in name for name in tree(disk(nodes, 1), "/data") if "quarantine" in name)

    run(main())


def test_an_interrupted_recovery_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            for node in (2, 3):
                nodes.disks[node] = MemoryFiles()
            with monkeypatch.context() as crash:
                crash.setattr(_Node, "forget_offsets", lambda self: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    recover(disk(nodes, 1), ["/data"], CLOCK, RNG, without=[2, 3])
            assert len(await fails(nodes, 1)) == 1, "it votes with no part of the log"
            done = recover(disk(nodes, 1), ["/data"], CLOCK, RNG)
            assert done.backup.endswith("metadata-backup-1")
            await nodes.start(1)
            assert set(nodes[1].stages.cluster.image.topics) == {"orders"}

    run(main())


def test_a_damaged_snapshot_is_replaced_by_that_of_another_voter() -> None:
    config = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

    async def main() -> None:
        async with cluster(3, config=config) as nodes:
            for number in range(12):
                assert await create(nodes, 1, f"topic-{number}", factor=3) == ErrorCode.NONE
            for broker in nodes.brokers.values():
                await eventually(
                    lambda log=broker.stages.cluster.node.log: (
                        log.snapshot is not None and log.start_offset > 0
                    )
                )
            await nodes.stop()
            for node in (1, 2):
                for name in disk(nodes, node).listdir(METADATA):
                    if name.endswith(".checkpoint"):
                        flip(disk(nodes, node), f"{METADATA}/{name}")
                # As after the segments below the snapshot were removed.
                log = disk(nodes, node).read(SEGMENT)
                middle = len(positions(log)) * 2 // 3
                offset = read_header(memoryview(log), positions(log)[middle]).base_offset
                disk(nodes, node).write_atomic(f"{METADATA}/{offset:020d}.log", log[positions(log)[middle] :])
                disk(nodes, node).remove(SEGMENT)
            with pytest.raises(RecoveryRefused, match="no copy has offsets 0 to"):
                recover(disk(nodes, 1), ["/data"], CLOCK, RNG, others=sources(nodes, 2), without=[3])
            done = recover(disk(nodes, 1), ["/data"], CLOCK, RNG, others=sources(nodes, 2, 3))
            assert "snapshot" in "".join(done.report)
            for node in (2, 3):
                rejoin(disk(nodes, node), ["/data"], RNG)
            await nodes.start()
            assert len(nodes[1].stages.cluster.image.topics) == 12

    run(main())
