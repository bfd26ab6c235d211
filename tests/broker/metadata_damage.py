"""Damage to the metadata of stopped nodes."""

from __future__ import annotations

import asyncio
from typing import cast

from penstock.storage.memory import MemoryFiles
from tests.broker.nodes import Cluster

METADATA = "/data/topics/__cluster_metadata/partition-0"
SEGMENT = f"{METADATA}/{0:020d}.log"
#: how long nodes are left to themselves that must not find a quorum
_WAIT_S = 2.5


def flip(files: MemoryFiles, path: str = SEGMENT, position: int | None = None) -> None:
    """Damage a file in place, open or not."""
    file = files.open(path)
    position = file.size() // 2 if position is None else position
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 0x10]), position)
    file.close()


def disk(nodes: Cluster, node: int) -> MemoryFiles:
    return cast(MemoryFiles, nodes.disks[node])


def tree(files: MemoryFiles, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.listdir(path):
        below = f"{path}/{name}"
        found |= tree(files, below) if files.is_dir(below) else {below: files.read(below)}
    return found


async def fails(nodes: Cluster, *starting: int) -> list[BaseException]:
    """The errors of nodes that must not start; a TimeoutError for each one that goes on waiting."""

    async def start(node: int) -> None:
        async with asyncio.timeout(_WAIT_S):
            await nodes.start(node)

    results = await asyncio.gather(*(start(node) for node in starting), return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]
