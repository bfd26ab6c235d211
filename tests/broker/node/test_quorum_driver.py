"""The driver of Raft: a vote is on the disk before it is sent."""

from __future__ import annotations

from errno import EIO
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.base.system_ports import SystemClock
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.model.errors import ErrorCode
from penstock.ports import Buffer
from penstock.storage.memory import MemoryFiles
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.topics import create


class _VotesCannotBeWritten(MemoryFiles):
    """A disk that fails when a vote is to be written down."""

    broken = False

    def write_atomic(self, path: str, data: Buffer) -> None:
        if self.broken and path.endswith("quorum-state"):
            raise OSError(EIO, "broken")
        super().write_atomic(path, data)


def test_a_node_that_cannot_write_its_vote_down_takes_no_more_part() -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        disk = nodes.disks[3] = _VotesCannotBeWritten()
        try:
            await nodes.start()
            leader = (await nodes.settled()).stages.config.node_id
            disk.broken = True
            victim = nodes[3]
            if leader == 3:
                await nodes[3].stages.cluster.node.quorum.resign(1)
            else:
                await nodes[leader].stages.cluster.node.quorum.resign(1)
            await eventually(victim.stages.cluster.node.is_over.is_set)
            assert victim.stages.cluster.node.quorum.failure is not None
            assert not victim.stages.cluster.node.controller.is_active
            await nodes.kill(3)
            await nodes.settled()
            assert await create(nodes, 1, "by-the-others") == ErrorCode.NONE
        finally:
            await nodes.close()

    run(main())


def test_a_tick_is_never_early() -> None:
    """An early tick does nothing, and needs a second one: both wake up an idle process."""
    early: list[float] = []

    class Node:
        """A Raft node that has nothing to do but wait."""

        def __init__(self) -> None:
            self.deadline_ms = 0.0
            self.ticks = 0
            self.quorum = SimpleNamespace(flushed_offset=0)

        def tick(self, now_ms: float) -> None:
            self.ticks += 1
            early.extend([self.deadline_ms - now_ms] if now_ms < self.deadline_ms else [])
            self.deadline_ms = now_ms + 3.1 + self.ticks % 7 / 10

        def take(self) -> Any:
            return SimpleNamespace(
                save=None,
                messages=[],
                replies=[],
                flush=False,
                installed=None,
                high_watermark=0,
                epoch=0,
                leader_id=0,
                deadline_ms=self.deadline_ms,
            )

    async def main() -> None:
        node, unused = Node(), cast(Any, None)
        log = cast(Any, SimpleNamespace(log=SimpleNamespace(advance_high_watermark=lambda offset: None)))
        events = cast(
            Any, SimpleNamespace(committed=lambda end: None, leader_changed=lambda epoch, leader: None)
        )
        driver = QuorumDriver(cast(Any, node), log, SystemClock(), unused, unused, events)
        driver.start()
        await eventually(lambda: node.ticks > 50)
        await driver.stop()

    run(main())
    assert not early
