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
from tests.broker.replication import described, make_topic, produce, replica, stop_fetching, stored

FOLLOWER = 3
VALUES = [b"one", b"two", b"three"]
#: high watermarks are not written to the disk
NO_CHECKPOINTS = {"replica.high.watermark.checkpoint.interval.ms": "3600000"}


class Refusing(FaultyDisk):
    """A disk that refuses to truncate one file."""

    refused: Inode | None = None

    def cut(self, inode: Inode, size: int) -> None:
        if inode is self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().cut(inode, size)


def on_two_disks() -> tuple[Cluster, Refusing]:
    """The metadata is on the first disk of the follower, and the topic on the second."""
    nodes = Cluster([1, 2, 3], config=NO_CHECKPOINTS)
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
    """Kill the follower, and flip a bit of its last batch, which was on the disk. Its high watermark is lost.

    Returns the path of the file.
    """
    partition = replica(nodes[FOLLOWER])
    assert partition.directory.path == "/bad"
    path = partition.log.segments.first.path(LOG)
    await partition.sync.flusher.flush()
    await nodes[FOLLOWER].stages.storage.partitions.checkpoints.write_all()
    await nodes.kill(FOLLOWER)
    nodes.disks[FOLLOWER].remove("/bad/replication-offset-checkpoint")
    flip(nodes, path, 2)
    return path


def flip(nodes: Cluster, path: str, nth: int) -> None:
    """Flip a bit in the records of the batch `nth` of the follower's segment file."""
    file = nodes.disks[FOLLOWER].open(path)
    position, _ = list(iter_batches(file.pread(file.size(), 0)))[nth]
    (byte,) = file.pread(1, position + 40)
    file.pwrite(bytes([byte ^ 1]), position + 40)
    file.close()


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
            assert (level, fields["offset"], fields["end_offset"]) == ("error", 2, 3)
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
            await eventually(lambda: not nodes[1].stages.cluster.image.brokers[FOLLOWER].fenced)
            assert sorted(described(nodes[1]).isr) == [1, 2]

            await nodes.stop(FOLLOWER)
            bad.refused = None
            await nodes.start(FOLLOWER)
            await in_sync(nodes)
        finally:
            await nodes.close()

    run(main())


async def killed_with_a_longer_log(nodes: Cluster, damaged: int) -> str:
    """Two records everywhere, two more at the follower; all are killed. Returns the damaged file there."""
    await nodes.start()
    await make_topic(nodes, FOLLOWER, 1, 2, min_isr=1)
    for value in VALUES[:2]:
        assert (await produce(nodes, FOLLOWER, value)).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(b).log.end_offset == 2 for b in nodes.brokers.values()))
    for node in (1, 2):
        await stop_fetching(nodes[node])
    for value in (b"only here", b"and this"):
        assert (await produce(nodes, FOLLOWER, value, acks=1)).error_code == ErrorCode.NONE
    path = replica(nodes[FOLLOWER]).log.segments.first.path(LOG)
    for node in (1, 2, FOLLOWER):
        await nodes.kill(node)
    flip(nodes, path, damaged)
    return path


def test_a_log_with_damage_behind_the_end_of_its_leader_is_quarantined(events: Events) -> None:
    """All were killed. The sound logs are preferred, and lack records that lie behind the damage."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3], config=NO_CHECKPOINTS)
        try:
            path = await killed_with_a_longer_log(nodes, 2)
            await nodes.start()
            await in_sync(nodes)
            assert replica(nodes[FOLLOWER]).log.end_offset == 2
            ((directory, (entry,)),) = [
                (directory, directory.quarantine.entries())
                for directory in nodes[FOLLOWER].stages.storage.partitions.directories
            ]
            assert "damage at 2" in entry.reason
            kept = f"{directory.quarantine.entry_path(entry.name)}/data/partition-0/{path.rpartition('/')[2]}"
            assert b"and this" in nodes.disks[FOLLOWER].read(kept)
            assert not events.of("corruption_replaced")
        finally:
            await nodes.close()

    run(main())


def test_committed_records_behind_a_lost_sector_are_kept_and_fetched_again(events: Events) -> None:
    """A sector of zeros above the recovery point looks as if a crash had left it out: the log ends before."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3], config=NO_CHECKPOINTS)
        try:
            await nodes.start()
            await make_topic(nodes, 1, 2, FOLLOWER)
            values = [value * 500 for value in VALUES]
            for value in values:
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            partition = replica(nodes[FOLLOWER])
            await eventually(lambda: partition.log.high_watermark == len(values))
            await nodes[FOLLOWER].stages.storage.partitions.checkpoints.write_high_watermarks()
            segment = partition.log.segments.first
            position, path = segment.find(1), segment.path(LOG)
            await nodes.kill(FOLLOWER)
            file = nodes.disks[FOLLOWER].open(path)
            file.pwrite(bytes(512), position // 512 * 512 + 512)
            file.close()

            await nodes.start(FOLLOWER)
            await in_sync(nodes)
            ((level, fields),) = events.of("committed_records_cut")
            assert (level, fields["end_offset"]) == ("error", 1)
            (kept,) = fields["paths"]
            assert values[2] in nodes.disks[FOLLOWER].read(kept)
        finally:
            await nodes.close()

    run(main())
