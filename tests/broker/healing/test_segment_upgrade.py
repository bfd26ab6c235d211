"""Sealed segments of version 1 of the encryption become those of the current one while the broker runs."""

from __future__ import annotations

import secrets

import pytest

from penstock.broker.base.encrypted_disks import Damage
from penstock.broker.healing.segment_upgrade import upgrade_segments
from penstock.encryption import VERSION
from penstock.encryption.directory import content_paths, file_state
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.version1 import encode_version1
from penstock.ports import Files
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_copy import copy_segment
from penstock.storage.segment_files import LOG
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import produce, replica, stored
from tests.broker.sealed_topics import sealed_topic
from tests.encryption.keyring import RING

BOTH = frozenset({1, VERSION})


async def cluster_of_version_1() -> Cluster:
    """Three brokers; the third has been stopped, and its directory is as an earlier release wrote it."""
    nodes = Cluster([1, 2, 3])
    for node in nodes.disks:
        nodes.disks[node] = EncryptedFiles(MemoryFiles(), RING, report=Damage())
    await nodes.start()
    await sealed_topic(nodes)
    await nodes.stop(3)
    files = nodes.disks[3]
    assert isinstance(files, EncryptedFiles) and isinstance(files.inner, MemoryFiles)
    inner = files.inner
    for path in [path for folder in inner.listdir("/") for path in content_paths(inner, f"/{folder}")]:
        inner.write_atomic(path, encode_version1(RING, secrets.token_bytes, files.read(path)))
    nodes.disks[3] = EncryptedFiles(inner, RING, accepts=BOTH, report=Damage())
    await nodes.start(3)
    return nodes


def versions(nodes: Cluster) -> list[int]:
    files = nodes.disks[3]
    assert isinstance(files, EncryptedFiles)
    return [file_state(files.inner, each.path(LOG)).version for each in replica(nodes[3]).log.segments]


def test_a_round_of_the_scrubber_converts_sealed_segments() -> None:
    async def main() -> None:
        nodes = await cluster_of_version_1()
        try:
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 7)
            assert versions(nodes) == [1, 1]
            held = replica(nodes[3]).log.read(0, 1 << 20, upper=7)
            assert held is not None
            expected = held.read()
            await nodes[3].stages.healing.scrubber.scrub_all()
            # The last segment was sealed first: an idle partition would keep it for ever.
            assert versions(nodes)[:2] == [VERSION, VERSION]
            assert held.read() == expected, "a fetch that has begun reads the old file"
            assert stored(replica(nodes[3])) == stored(replica(nodes[1]))
            await produce(nodes, 1, b"more")
            await eventually(lambda: stored(replica(nodes[3])) == stored(replica(nodes[1])))
            await nodes.stop(3)
            await nodes.start(3)
            assert not replica(nodes[3]).log.recovery.corruption, "the manifest still fits"
            await eventually(lambda: stored(replica(nodes[3])) == stored(replica(nodes[1])))
            assert set(versions(nodes)) == {VERSION}
        finally:
            await nodes.close()

    run(main())


def test_a_damaged_segment_is_repaired_before_it_is_converted() -> None:
    """A conversion makes the content authentic, so it must be right."""

    async def main() -> None:
        nodes = await cluster_of_version_1()
        try:
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 7)
            files = nodes.disks[3]
            assert isinstance(files, EncryptedFiles)
            path = replica(nodes[3]).log.segments.first.path(LOG)
            file = files.inner.open(path)
            (byte,) = file.pread(1, 4096 + 100)
            file.pwrite(bytes([byte ^ 4]), 4096 + 100)
            await nodes[3].stages.healing.scrubber.scrub_all()
            assert nodes[3].stages.storage.metrics.corruption_repaired == 1
            assert versions(nodes)[0] == VERSION
            assert stored(replica(nodes[3])) == stored(replica(nodes[1]))
        finally:
            await nodes.close()

    run(main())


def test_a_segment_that_changes_during_the_copy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        nodes = await cluster_of_version_1()
        try:
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 7)
            opened = replica(nodes[3]).log

            def copied(files: Files, path: str, base_offset: int, size: int) -> None:
                copy_segment(files, path, base_offset, size)
                opened.segments.first.size -= 1

            monkeypatch.setattr("penstock.broker.healing.segment_upgrade.copy_segment", copied)
            await upgrade_segments(nodes[3].stages.healing.scrubber._env, replica(nodes[3]))
            opened.segments.first.size += 1
            assert versions(nodes) == [1, 1]
            files = nodes.disks[3]
            assert not [name for name in files.listdir(opened.path) if name in ("cleaned", "swap")]
        finally:
            await nodes.close()

    run(main())
