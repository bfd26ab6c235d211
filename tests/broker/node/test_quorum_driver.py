"""The driver of Raft: a vote is on the disk before it is sent."""

from __future__ import annotations

from errno import EIO

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
            leader = (await nodes.settled()).node_id
            disk.broken = True
            victim = nodes[3]
            if leader == 3:
                await nodes[3].node.quorum.resign(1)
            else:
                await nodes[leader].node.quorum.resign(1)
            await eventually(victim.node.is_over.is_set)
            assert victim.node.quorum.failure is not None
            assert not victim.node.controller.is_active
            await nodes.kill(3)
            await nodes.settled()
            assert await create(nodes, 1, "by-the-others") == ErrorCode.NONE
        finally:
            await nodes.close()

    run(main())
