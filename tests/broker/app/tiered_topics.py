"""Topics of tiered storage, and what their archive in a folder has."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.archive.chain import newest_manifest
from penstock.archive.documents import Manifest
from penstock.archive.names import TIER, ArchivedPartition
from penstock.archive.verifying import verify_partition
from penstock.model.ids import parse_topic_id
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import open_store

__all__ = ["TIERED", "copied_until", "newest", "owners", "tiered"]

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "500"}


def tiered(archive: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "penstock.remote.log.address": str(archive),
        "remote.log.manager.task.interval.ms": "20",
        "log.retention.check.interval.ms": "20",
        "log.segment.delete.delay.ms": "0",
    }


def owners(archive: Path) -> list[ArchivedPartition]:
    return [
        ArchivedPartition(path.parent.parent.name, parse_topic_id(path.parent.name), int(path.name))
        for path in archive.glob("topics/*/*/*")
    ]


def newest(archive: Path, partition: int = 0) -> Manifest | None:
    """The newest manifest of the only topic, of which every byte is right."""

    async def read() -> Manifest | None:
        for owner in owners(archive):
            if owner.partition == partition:
                store = open_store(parse_address(str(archive)))
                found = await newest_manifest(store, owner, TIER)
                if found is not None:
                    await verify_partition(store, found[0])
                    return found[0]
        return None

    return asyncio.run(read())


def copied_until(archive: Path, partition: int = 0) -> int:
    manifest = newest(archive, partition)
    return -1 if manifest is None else manifest.next_offset
