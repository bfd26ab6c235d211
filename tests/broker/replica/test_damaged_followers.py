"""Followers that have crashed and whose log is damaged above the high watermark, and full or failed disks."""

from __future__ import annotations

import errno
import os
from random import Random

from penstock.model.errors import ErrorCode
from penstock.records.record import iter_batches
from penstock.storage.memory import Inode
from penstock.storage.segment_files import LOG
from penstock.testing.disk import FaultyDisk
from tests.broker.disks import Volumes
from tests.broker.events import Events
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica, stored

FOLLOWER = 3
VALUES = [b"one", b"two", b"three"]


class Refusing(FaultyDisk):
    """A disk that refuses to truncate one file."""

    refused: Inode | None = None

    def cut(self, inode: Inode, size: int) -> None:
        if inode is self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().cut(inode, size)


def on_two_disks() -> tuple[Cluster, Refusing]:
    """The metadata is on the first disk of the follower, and the topic on the second."""
    nodes = Cluster([1, 2, 3], config={"replica.high.watermark.checkpoint.interval.ms": "3600000"})
    bad = Refusing(Random(2))
    nodes.settings[FOLLOWER]["log.dirs"] = "/good,/bad"
    nodes.disks[FOLLOWER] = Volumes(good=FaultyDisk(Random(1)), bad=bad)
    return nodes, bad


async def filled(nodes: Cluster) -> None:
    await make_topic(nodes, FOLLOWER, name="first", min_isr=1)
    await make_topic(nodes, 1, 2, FOLLOWER)
    for value in VALUES:
        assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(b).log.end_offset == len(VALUES) for b in nodes.brokers.values()))


async def kill_and_damage(nodes: Cluster) -> str:
    """Kill the follower, and flip a bit of its second batch. Its high watermark was never written.

    Returns the path of the file.
    """
    partition = replica(nodes[FOLLOWER])
    assert partition.directory.path == "/bad"
    path = partition.log.segments.first.path(LOG)
    await nodes.kill(FOLLOWER)
    file = nodes.disks[FOLLOWER].open(path)
    position, _ = list(iter_batches(file.pread(file.size(), 0)))[1]
    (byte,) = file.pread(1, position + 40)
    file.pwrite(bytes([byte ^ 1]), position + 40)
    file.close()
    return path


async def in_sync(nodes: Cluster) -> None:
    await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
    await eventually(lambda: stored(replica(nodes[FOLLOWER])) == stored(replica(nodes[1])))


def test_damage_above_the_high_watermark_is_truncated_and_fetched_again(events: Events) -> None:
    async def main() -> None:
        nodes, _ = on_two_disks()
        try:
            await nodes.start()
            await filled(nodes)
            await kill_and_damage(nodes)
            await nodes.start(FOLLOWER)
            await in_sync(nodes)
            ((level, fields),) = events.of("corruption_replaced")
            assert (level, fields["offset"], fields["end_offset"]) == ("error", 1, 3)
            assert not replica(nodes[FOLLOWER]).log.recovery.corruption
        finally:
            await nodes.close()

    run(main())


def test_a_disk_that_refuses_the_truncation_is_offline_until_a_restart(events: Events) -> None:
    """The follower does not fetch behind the damage. The broker is up without that directory."""

    async def main() -> None:
        nodes, bad = on_two_disks()
        try:
            await nodes.start()
            await filled(nodes)
            path = await kill_and_damage(nodes)
            damaged = bad._find(path)
            assert isinstance(damaged, Inode)
            bad.refused = damaged
            await nodes.start(FOLLOWER)
            await eventually(lambda: bool(events.of("corruption_not_cut")))
            assert "Input/output error" in events.of("corruption_not_cut")[0][1]["error"]
            assert sorted(described(nodes[1]).isr) == [1, 2]
            assert not nodes[1].image.brokers[FOLLOWER].fenced

            await nodes.stop(FOLLOWER)
            bad.refused = None
            await nodes.start(FOLLOWER)
            await in_sync(nodes)
        finally:
            await nodes.close()

    run(main())
