"""A voter on a new disk replaces its voter key."""

from __future__ import annotations

import pytest

from penstock.broker.base.system_ports import SystemRng
from penstock.broker.node.quorum_recovery import rejoin
from penstock.model.errors import ErrorCode
from penstock.storage.memory import MemoryFiles
from tests.broker.events import Events
from tests.broker.metadata_damage import disk, fails
from tests.broker.nodes import cluster, eventually, run
from tests.broker.topics import create


def test_a_wiped_voter_and_a_stale_one_elect_no_leader_and_lose_nothing(events: Events) -> None:
    # As shipped: a voter that follows a leader which has gone elects another one after this time.
    timeouts = {"controller.quorum.fetch.timeout.ms": "2000"}

    async def main() -> None:
        async with cluster(3, config=timeouts) as nodes:
            await nodes.settled()
            await nodes.stop(3)
            assert await create(nodes, 1, "orders", factor=2) == ErrorCode.NONE
            old = nodes[1].stages.cluster.node.key
            await nodes.stop()
            nodes.disks[1] = MemoryFiles()
            errors = await fails(nodes, 1, 3)
            assert len(errors) == 2 and all(isinstance(e, TimeoutError) for e in errors)
            await nodes.start()
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.stages.cluster.image: "orders" in image.topics)
            new = nodes[1].stages.cluster.node.key
            assert new != old
            await eventually(
                lambda: all(
                    b.stages.cluster.node.quorum.state.voters.has(new) for b in nodes.brokers.values()
                )
            )
            assert not any(b.stages.cluster.node.quorum.state.voters.has(old) for b in nodes.brokers.values())
            await eventually(lambda: bool(events.of("voter_replaced")))
            await nodes.kill(2)
            await nodes.settled()
            assert await create(nodes, 3, "with-the-new-disk") == ErrorCode.NONE

    run(main())


def test_a_voter_that_was_not_replaced_in_time_rejoins_by_hand(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            old = nodes[3].stages.cluster.node.key
            await nodes.stop(3)
            nodes.disks[3] = MemoryFiles()
            with monkeypatch.context() as hour:
                hour.setattr("penstock.broker.node.rejoining._PATIENCE_S", 0.0)
                await nodes.start(3)
                await eventually(lambda: bool(events.of("voter_not_replaced")))
            assert not events.of("voter_replaced")

            await nodes.stop(3)
            rejoin(disk(nodes, 3), ["/data"], SystemRng())
            await nodes.start(3)
            await eventually(lambda: bool(events.of("voter_replaced")))
            new = nodes[3].stages.cluster.node.key
            await eventually(
                lambda: all(
                    b.stages.cluster.node.quorum.state.voters.has(new) for b in nodes.brokers.values()
                )
            )
            assert not nodes[1].stages.cluster.node.quorum.state.voters.has(old)

    run(main())
