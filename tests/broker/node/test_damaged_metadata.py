"""Nodes whose metadata is damaged, wiped or rolled back, in a cluster of three and alone."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.model.errors import ErrorCode
from penstock.raft.state import Recovery
from tests.broker.events import Events
from tests.broker.metadata_damage import METADATA, SEGMENT, disk, fails, flip, tree
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create


def state(nodes: Cluster, node: int) -> Recovery:
    return nodes[node].stages.cluster.node.quorum.state.state.recovery


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
def test_one_damaged_voter_of_three_fetches_its_metadata_again(how: str, events: Events) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            files = disk(nodes, 2)
            if how == "flipped":
                flip(files)
            elif how == "cut":
                files.write_atomic(SEGMENT, files.read(SEGMENT)[:-9])
            else:
                files.remove(SEGMENT)
            await nodes.start()
            await nodes.settled()
            ((level, damaged),) = events.of("metadata_damaged")
            assert (level == "error" and SEGMENT in damaged["reason"]) or METADATA in damaged["reason"]
            kept = tree(files, damaged["quarantine"])
            assert any(name.endswith("quarantine.json") for name in kept)
            await eventually(lambda: state(nodes, 2) == Recovery.NONE)
            assert set(nodes[2].stages.cluster.image.topics) == {"orders"}
            # It counts again: with it, one of the others is enough.
            await nodes.kill(3)
            await nodes.settled()
            assert await create(nodes, 2, "invoices", factor=2) == ErrorCode.NONE

    run(main())


def reasons(events: Events) -> list[str]:
    return [fields["reason"] for _, fields in events.of("waiting_for_majority")]


def test_two_damaged_voters_of_three_do_not_start_and_the_third_keeps_its_data(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lifecycle, "_patience_s", 1.0)

    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            for node in (1, 2):
                flip(disk(nodes, node))
            log = disk(nodes, 3).read(SEGMENT)
            data = tree(disk(nodes, 3), "/data/topics/orders")
            errors = await fails(nodes, 1, 2, 3)
            assert len(errors) == 3 and all(isinstance(e, TimeoutError) for e in errors)
            assert sum("metadata log was damaged" in reason for reason in reasons(events)) == 2
            assert disk(nodes, 3).read(SEGMENT) == log
            assert tree(disk(nodes, 3), "/data/topics/orders") == data
            for node in (1, 2):
                assert disk(nodes, node).is_dir("/data/topics/orders/partition-0")

    run(main())


def test_a_damaged_voter_stays_out_over_a_restart(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifecycle, "_patience_s", 1.0)

    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            await nodes.stop()
            flip(disk(nodes, 1))
            for starts in (1, 2):
                (error,) = await fails(nodes, 1)
                assert isinstance(error, TimeoutError)
                assert sum("metadata log was damaged" in reason for reason in reasons(events)) == starts
            await nodes.start()
            await eventually(lambda: state(nodes, 1) == Recovery.NONE)
            assert "orders" in nodes[1].stages.cluster.image.topics

    run(main())


def test_damage_that_is_found_while_a_node_leads_ends_the_node() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            leader = (await nodes.settled()).stages.config.node_id
            other = next(node for node in nodes.brokers if node != leader)
            await nodes.kill(other)
            assert await create(nodes, leader, "orders") == ErrorCode.NONE
            flip(disk(nodes, leader), position=disk(nodes, leader).size(SEGMENT) - 5)
            disk(nodes, other).rmtree(METADATA)
            disk(nodes, other).makedirs(METADATA)
            starting = asyncio.create_task(nodes.start(other))
            await eventually(nodes[leader].stages.cluster.node.is_over.is_set)
            assert "damaged" in str(nodes[leader].stages.cluster.node.quorum.failure)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    run(main())


def test_the_log_names_the_directories_of_all_voters() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            keys = [broker.stages.cluster.node.key for _, broker in sorted(nodes.brokers.items())]
            for broker in nodes.brokers.values():
                quorum = broker.stages.cluster.node.quorum.state
                await eventually(lambda quorum=quorum: [voter.key for voter in quorum.voters] == keys)

    run(main())


def test_a_node_refuses_to_drop_records_that_two_rolled_back_nodes_lack() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            old = {node: deepcopy(disk(nodes, node)) for node in (1, 2)}
            await nodes.start()
            for name in ("invoices", "payments"):
                assert await create(nodes, 1, name, factor=3) == ErrorCode.NONE
            await nodes.stop()
            nodes.disks.update(old)
            await nodes.start(1, 2)
            for n in range(4):
                assert await create(nodes, 1, f"again-{n}") == ErrorCode.NONE
            kept = tree(disk(nodes, 3), "/data/topics/invoices")
            # By its epoch, its log could win an election: then it is the two others that refuse.
            assert len(await fails(nodes, 3)) == 1
            for broker in nodes.brokers.values():
                failure = broker.stages.cluster.node.quorum.failure
                assert failure is None or "committed" in str(failure)
            assert tree(disk(nodes, 3), "/data/topics/invoices") == kept

    run(main())
