"""Damage of encrypted files: a read finds it, the scrubber reports it, and another replica repairs it."""

from __future__ import annotations

import pytest

from penstock.broker.base.encrypted_disks import Damage
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.frames import FIRST_BLOCK
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import make_topic, produce, replica, stored
from tests.broker.sealed_topics import sealed_topic
from tests.encryption.keyring import RING


def encrypted() -> Cluster:
    nodes = Cluster([1, 2, 3])
    for node in nodes.disks:
        nodes.disks[node] = EncryptedFiles(MemoryFiles(), RING, report=Damage())
    return nodes


def below(nodes: Cluster, node: int) -> EncryptedFiles:
    files = nodes.disks[node]
    assert isinstance(files, EncryptedFiles)
    return files


def flip(nodes: Cluster, node: int, path: str, position: int) -> None:
    file = below(nodes, node).inner.open(path)
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 4]), position)


@pytest.mark.parametrize("position", [FIRST_BLOCK + 1, FIRST_BLOCK + 40, FIRST_BLOCK + 400])
def test_the_scrubber_repairs_a_damaged_frame(position: int) -> None:
    async def main() -> None:
        nodes = encrypted()
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            path = replica(nodes[3]).log.segments.first.path(LOG)
            flip(nodes, 3, path, position)
            below(nodes, 3).cache.clear()
            await nodes[3].stages.healing.scrubber.scrub_all()
            assert nodes[3].stages.storage.metrics.corruption_repaired == 1
            below(nodes, 3).cache.clear()
            assert stored(replica(nodes[3])) == healthy
        finally:
            await nodes.close()

    run(main())


def test_a_read_that_finds_damage_starts_the_repair() -> None:
    """No round of the scrubber is due for a day."""

    async def main() -> None:
        nodes = encrypted()
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            segment = replica(nodes[2]).log.segments.first
            flip(nodes, 2, segment.path(LOG), FIRST_BLOCK + 200)
            below(nodes, 2).cache.clear()
            found = replica(nodes[2]).log.read(0, 1 << 20, upper=7)
            assert found is not None
            with pytest.raises(OSError, match="not authentic"):
                found.read()
            await eventually(lambda: nodes[2].stages.storage.metrics.corruption_repaired == 1)
            assert stored(replica(nodes[2])) == healthy
            assert replica(nodes[2]).health.is_well
        finally:
            await nodes.close()

    run(main())


def test_a_segment_that_was_replaced_while_the_broker_runs_is_repaired() -> None:
    async def main() -> None:
        nodes = encrypted()
        try:
            await nodes.start()
            await sealed_topic(nodes)
            await make_topic(nodes, 1, 2, 3, name="other")
            for _ in range(6):
                await produce(nodes, 1, b"other value", name="other")
            healthy = stored(replica(nodes[1]))
            path = replica(nodes[3]).log.segments.first.path(LOG)
            inner = below(nodes, 3).inner
            other = inner.read(replica(nodes[3], "other").log.segments.first.path(LOG))
            # As `cp` does it: the same file has other bytes.
            file = inner.open(path)
            file.truncate(0)
            file.append(other)
            below(nodes, 3).cache.clear()
            await nodes[3].stages.healing.scrubber.scrub_all()
            await eventually(lambda: not replica(nodes[3]).log.recovery.corruption)
            assert stored(replica(nodes[3])) == healthy
            await nodes.stop(3)
            await nodes.start(3)
            await eventually(lambda: not replica(nodes[3]).log.recovery.corruption)
            assert stored(replica(nodes[3])) == healthy
        finally:
            await nodes.close()

    run(main())
