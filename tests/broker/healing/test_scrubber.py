"""Damage on one replica's disk: found, reported, never served, and replaced from a healthy replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.healing.scrubber import Scrubber
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, PenstockError
from penstock.storage.segment_files import LOG
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import (
    described,
    fetch,
    make_topic,
    produce,
    replica,
    stored,
    values_of,
)
from tests.broker.sealed_topics import VALUES, sealed_topic


def damage(nodes: Cluster, node: int) -> None:
    """Flip a bit in the middle of a sealed segment."""
    segment = replica(nodes[node]).log.segments.first
    flip(nodes, node, segment.path(LOG), segment.size // 2)


def flip(nodes: Cluster, node: int, path: str, position: int) -> None:
    file = nodes.disks[node].open(path)
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 4]), position)


@pytest.mark.parametrize("node", [1, 3], ids=["leader", "follower"])
def test_a_flipped_bit_is_found_never_served_and_healed(node: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            partition, scrubber = replica(nodes[node]), nodes[node].scrubber
            healthy = stored(partition)
            damage(nodes, node)
            await scrubber.scrub(partition)
            (found,) = partition.log.recovery.corruption
            assert nodes[node].metrics.corruption_found == 1
            assert (await fetch(nodes, node, found.first_offset)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert values_of(await fetch(nodes, node)) == VALUES[: found.first_offset]
            assert values_of(await fetch(nodes, node, found.next_offset)) == VALUES[found.next_offset :]

            await scrubber.repair(partition)
            assert nodes[node].metrics.corruption_repaired == 1
            assert not partition.log.recovery.corruption
            assert stored(partition) == healthy
            assert values_of(await fetch(nodes, node)) == VALUES
            # Nobody had to leave for that.
            assert (described(nodes[1]).leader, sorted(described(nodes[1]).isr)) == (1, [1, 2, 3])

    run(main())


def test_a_damaged_batch_that_the_log_begins_within_is_healed() -> None:
    """DeleteRecords leaves the rest of a batch: other replicas refuse who asks for what lies before it."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a", b"b", b"c")).error_code == ErrorCode.NONE
            await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 3 for node in (1, 2, 3)))
            for node in (1, 2, 3):
                replica(nodes[node]).log.roll()
                replica(nodes[node]).log.delete_records(2)
            partition, scrubber = replica(nodes[1]), nodes[1].scrubber
            healthy = stored(partition)
            segment = partition.log.segments.first
            flip(nodes, 1, segment.path(LOG), segment.size - 1)
            await scrubber.scrub(partition)
            assert (await fetch(nodes, 1, 2)).error_code == ErrorCode.CORRUPT_MESSAGE
            await scrubber.repair(partition)
            assert stored(partition) == healthy
            assert not partition.log.recovery.corruption

    run(main())


def test_damage_that_a_compacted_log_begins_within_is_healed() -> None:
    """Of what is deleted and compacted, nobody needs what lies before the log's start."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for values in ((b"a", b"b"), (b"c", b"d")):
                assert (await produce(nodes, 1, *values)).error_code == ErrorCode.NONE
            await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 4 for node in (1, 2, 3)))
            for node in (1, 2, 3):
                log = replica(nodes[node]).log
                log.reconfigure(replace(log.config, cleanup_policy=frozenset({"compact", "delete"})))
                log.roll()
                log.delete_records(3)
            partition, scrubber = replica(nodes[1]), nodes[1].scrubber
            segment = partition.log.segments.first
            for position in (segment.size // 2 - 1, segment.size - 1):
                flip(nodes, 1, segment.path(LOG), position)
            await scrubber.scrub(partition)
            assert (await fetch(nodes, 1, 3)).error_code == ErrorCode.CORRUPT_MESSAGE
            await scrubber.repair(partition)
            assert not partition.log.recovery.corruption
            assert values_of(await fetch(nodes, 1, 3)) == [b"c", b"d"]

    run(main())


@pytest.mark.process
def test_files_are_read_in_another_process(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3], config={"penstock.memory": "false"})
        for node in (1, 2, 3):
            nodes.disks[node] = OsFiles()
            nodes.settings[node]["log.dirs"] = str(tmp_path / str(node))
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[3]))
            damage(nodes, 3)
            await nodes[3].scrubber.scrub_all()
            assert nodes[3].metrics.corruption_repaired == 1
            assert stored(replica(nodes[3])) == healthy
        finally:
            await nodes.close()

    run(main())


def test_rounds_come_by_themselves() -> None:
    async def main() -> None:
        async with cluster(3, config={"penstock.scrub.interval.ms": "10"}) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            for node in (1, 3):
                damage(nodes, node)
            await eventually(lambda: all(nodes[n].metrics.corruption_repaired == 1 for n in (1, 3)))
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == [healthy] * 3
            assert nodes[2].metrics.corruption_found == 0

    run(main())


async def _find_nothing(self: Scrubber) -> None:
    """A round that is over before anything is damaged."""


async def _go_on(self: Scrubber) -> None:
    """A round over more than can be read in the time."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("scrub_all", [_find_nothing, _go_on], ids=["after a round", "during a round"])
def test_what_is_known_to_be_damaged_does_not_wait_for_a_round(
    monkeypatch: pytest.MonkeyPatch, scrub_all: Callable[[Scrubber], Awaitable[None]]
) -> None:
    """Who could mend it may have been away in the last one."""
    monkeypatch.setattr("penstock.broker.healing.scrubber._SETTLE_S", 0.02)
    monkeypatch.setattr(Scrubber, "scrub_all", scrub_all)

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            damage(nodes, 1)
            await nodes[1].scrubber.scrub(replica(nodes[1]))
            await eventually(lambda: nodes[1].metrics.corruption_repaired == 1)

    run(main())


def test_what_a_comparison_judges_is_mended_by_its_verdict_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who are in sync, some may have the same wrong bytes."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            scrubber, metrics = nodes[1].scrubber, nodes[1].metrics

            async def judge(broker: Broker, partition: Partition) -> None:
                if partition is replica(nodes[1]):
                    damage(nodes, 1)
                    await scrubber.scrub(partition)
                    await scrubber.repair_all()

            monkeypatch.setattr("penstock.broker.healing.scrubber.compare_replica", judge)
            await scrubber.scrub_all()
            assert (metrics.corruption_found, metrics.corruption_repaired) == (1, 0)
            await scrubber.repair_all()
            assert metrics.corruption_repaired == 1

    run(main())


def test_a_corrupt_minority_does_not_spread_by_repairs() -> None:
    """The leader is damaged at the same place and does not know yet: its bytes are refused."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[2]))
            damage(nodes, 1)
            damage(nodes, 3)
            partition = replica(nodes[3])
            await nodes[3].scrubber.scrub(partition)
            await nodes[3].scrubber.repair(partition)
            assert stored(partition) == healthy

    run(main())


def test_what_nobody_else_has_stays_reported() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            for node in (1, 2, 3):
                damage(nodes, node)
                await nodes[node].scrubber.scrub(replica(nodes[node]))
            for node in (1, 2, 3):
                await nodes[node].scrubber.repair(replica(nodes[node]))
                (found,) = replica(nodes[node]).log.recovery.corruption
                answer = await fetch(nodes, node, found.first_offset)
                assert answer.error_code == ErrorCode.CORRUPT_MESSAGE

    run(main())


@pytest.mark.parametrize("number", [2, 5], ids=["in the middle", "last of its segment"])
def test_a_leader_that_was_killed_and_has_rot_is_healed_by_a_complete_replica(number: int) -> None:
    """Nothing says of its segments that they are on the disk; it was alone in the ISR, another leads now."""

    async def main() -> None:
        nodes = Cluster([1], [2, 3], {"penstock.scrub.interval.ms": "20"})
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            await asyncio.gather(nodes.kill(2), nodes.kill(3))
            await eventually(lambda: list(described(nodes[1]).isr) == [1])
            segment = replica(nodes[1]).log.segments.first
            await nodes.kill(1)
            flip(nodes, 1, segment.path(LOG), segment.find(number) + 65)
            await nodes.start()
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            await eventually(lambda: all(replica(nodes[n]).log.end_offset == 7 for n in (1, 2, 3)))
            assert not replica(nodes[1]).log.recovery.corruption
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == [healthy] * 3
        finally:
            await nodes.close()

    run(main())


def test_a_node_whose_metadata_has_rotted_does_not_start() -> None:
    """Cut there, a voter could elect who lacks what it had voted for, and a lone broker would lose topics."""

    async def main() -> None:
        async with cluster(1) as nodes:
            await make_topic(nodes, 1, min_isr=1)
            path = nodes[1].node.log.log.segments.active.path(LOG)
            await nodes.kill(1)
            flip(nodes, 1, path, 100)
            with pytest.raises(PenstockError, match="damaged"):
                await nodes.start()

    run(main())
