"""A replica that has lost segments leads nothing, serves nothing across the hole, and is made whole again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.storage.holes import holes
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, SUFFIXES
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, fetch, led_by, make_topic, produce, replica, values_of

NODES = (1, 2, 3)


#: per segment
COUNT = 4
VALUES = [b"value %d" % nth for nth in range(5 * COUNT)]


#: what happens to the segments of a stopped broker; the last of them is the active one
Loss = Callable[[Cluster, int, list[Segment]], None]


def remove(*positions: int) -> Loss:
    def lose(nodes: Cluster, node: int, segments: list[Segment]) -> None:
        for segment in [segments[position] for position in positions]:
            for suffix in SUFFIXES:
                if nodes.disks[node].exists(segment.path(suffix)):
                    nodes.disks[node].remove(segment.path(suffix))

    return lose


def remove_start(nodes: Cluster, node: int, segments: list[Segment]) -> None:
    """The first segment, and the checkpoint that shows that it is missing."""
    remove(0)(nodes, node, segments)
    nodes.disks[node].remove("/data/log-start-offset-checkpoint")


def truncate(position: int, left: float) -> Loss:
    def lose(nodes: Cluster, node: int, segments: list[Segment]) -> None:
        segment = segments[position]
        nodes.disks[node].open(segment.path(LOG)).truncate(int(segment.size * left))

    return lose


def rename(position: int) -> Loss:
    def lose(nodes: Cluster, node: int, segments: list[Segment]) -> None:
        old = segments[position].path(LOG)
        nodes.disks[node].rename(old, old.replace(f"{COUNT * position:020}", f"{COUNT * position + 1:020}"))

    return lose


LOSSES = {
    "first": remove(0),
    "last": remove(4),
    "last truncated": truncate(4, 0.5),
    "middle": remove(2),
    "first and middle": remove(0, 2),
    "two in the middle": remove(2, 3),
    "truncated": truncate(1, 0.5),
    "torn": truncate(1, 0.4),
    "emptied": truncate(2, 0),
    "renamed": rename(2),
}
#: losses while the broker is stopped
STOPPED_LOSSES = {**LOSSES, "first and its checkpoint": remove_start}


async def filled(nodes: Cluster, *replicas: int) -> None:
    """Five segments on every replica, the last of them active, all on the disk and checkpointed."""
    replicas = replicas or NODES
    await make_topic(nodes, *replicas)
    for nth, value in enumerate(VALUES):
        if nth and nth % COUNT == 0:
            await eventually(lambda nth=nth: all(replica(nodes[n]).log.end_offset == nth for n in NODES))
            for node in NODES:
                replica(nodes[node]).log.roll()
        assert (await produce(nodes, replicas[0], value)).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(nodes[n]).log.high_watermark == len(VALUES) for n in NODES))
    for node in NODES:
        await replica(nodes[node]).sync.flusher.flush()
        await nodes[node].stages.storage.partitions.checkpoints.write_all()


async def read_all(nodes: Cluster, node: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < len(VALUES):
        answer = await fetch(nodes, node, len(values))
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        got = values_of(answer)
        assert got, f"nothing at {len(values)}"
        values += got
    return values


async def whole_again(nodes: Cluster) -> None:
    """Every replica is in sync and has everything."""

    def is_whole() -> bool:
        return all(
            sorted(described(nodes[node]).isr) == [1, 2, 3]
            and not replica(nodes[node]).log.recovery.corruption
            and replica(nodes[node]).log.high_watermark == len(VALUES)
            for node in NODES
        )

    await eventually(is_whole)
    for node in NODES:
        assert replica(nodes[node]).log.log_start_offset == 0
        assert await read_all(nodes, node) == VALUES


async def leads(nodes: Cluster, node: int) -> None:
    """Have the preferred replica lead, if another does, and read everything from it."""
    leader = described(nodes[node]).leader
    if leader != node:
        await nodes.stop(leader)
        await led_by(nodes, node)
    assert await read_all(nodes, node) == VALUES
    assert (await produce(nodes, node, b"more")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("node", [1, 3], ids=["leader", "follower"])
@pytest.mark.parametrize("loss", STOPPED_LOSSES.values(), ids=STOPPED_LOSSES)
def test_segments_lost_while_all_brokers_were_stopped_are_fetched_again(node: int, loss: Loss) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            segments = list(replica(nodes[node]).log.segments)
            # The last one to stop leads first: all others have left the ISR by then.
            await nodes.stop_in_turn(*(other for other in NODES if other != node), node)
            loss(nodes, node, segments)
            await nodes.start()
            await whole_again(nodes)

    run(main())


@pytest.mark.parametrize(("node", "lost"), [(3, 2), (1, 0)], ids=["follower", "leader"])
def test_a_replica_that_got_its_segments_back_leads_with_everything(node: int, lost: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            others = [other for other in NODES if other != node]
            await filled(nodes, node, *others)
            segments = list(replica(nodes[node]).log.segments)
            await nodes.stop_in_turn(*others, node)
            remove(lost)(nodes, node, segments)
            await nodes.start()
            await whole_again(nodes)
            await leads(nodes, node)

    run(main())


@pytest.mark.parametrize("loss", ["first", "first and its checkpoint", "middle", "last truncated", "torn"])
def test_segments_lost_after_a_crash_are_fetched_again(loss: str) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            segments = list(replica(nodes[2]).log.segments)
            await nodes.kill(2)
            STOPPED_LOSSES[loss](nodes, 2, segments)
            await nodes.start(2)
            await whole_again(nodes)

    run(main())


@pytest.mark.parametrize(
    ("node", "loss"), [(1, "first"), (1, "middle"), (1, "last"), *((3, loss) for loss in LOSSES)]
)
def test_segments_lost_while_the_broker_runs_are_found_by_the_scrubber(node: int, loss: str) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            partition, scrubber = replica(nodes[node]), nodes[node].stages.healing.scrubber
            LOSSES[loss](nodes, node, list(partition.log.segments))
            # No cached descriptor keeps what was removed.
            for segment in partition.log.segments:
                if segment is not partition.log.segments.active:
                    segment.release()
            await scrubber.scrub(partition)
            await scrubber.repair(partition)
            await whole_again(nodes)

    run(main())


def test_a_batch_that_is_damaged_before_a_lost_segment_is_fetched_with_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            partition, scrubber = replica(nodes[3]), nodes[3].stages.healing.scrubber
            segments = list(partition.log.segments)
            remove(2)(nodes, 3, segments)
            file = nodes.disks[3].open(segments[1].path(LOG))
            file.pwrite(b"?", segments[1].size - 3)
            for segment in segments[:-1]:
                segment.release()
            await scrubber.scrub(partition)
            assert [(hole.first_offset, hole.next_offset) for hole in holes(partition.log)] == [(7, 12)]
            await scrubber.repair(partition)
            await whole_again(nodes)

    run(main())


def test_a_replica_with_a_hole_serves_nothing_across_it_and_is_not_in_sync() -> None:
    """The replica that could give it what it lacks, and leads, is down."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            segments = {node: list(replica(nodes[node]).log.segments) for node in NODES}
            await nodes.stop_in_turn(2, 3, 1)
            for node in (2, 3):
                remove(2)(nodes, node, segments[node])
            await nodes.start(2, 3)
            await eventually(lambda: all(holes(replica(nodes[node]).log) for node in (2, 3)))
            for node in (2, 3):
                assert values_of(await fetch(nodes, node, 4)) == VALUES[4:8]
                for offset in range(8, 12):
                    answer = await fetch(nodes, node, offset)
                    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
                assert values_of(await fetch(nodes, node, 12)) == VALUES[12:16]
            await nodes.start(1)
            await whole_again(nodes)

    run(main())


def test_two_replicas_with_different_holes_complete_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's hole is filled when a replica that has the range joins the ISR, not a minute later."""
    monkeypatch.setattr("penstock.broker.healing.scrubber._SETTLE_S", 3600)

    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            segments = {node: list(replica(nodes[node]).log.segments) for node in NODES}
            await nodes.stop_in_turn(1, 2, 3)
            remove(1)(nodes, 1, segments[1])
            remove(2)(nodes, 2, segments[2])
            remove(3)(nodes, 3, segments[3])
            await nodes.start()
            await whole_again(nodes)

    run(main())


def test_a_hole_before_the_leaders_log_start_is_given_up() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await filled(nodes)
            segments = list(replica(nodes[3]).log.segments)
            await nodes.stop(3)
            remove(0)(nodes, 3, segments)
            replica(nodes[1]).log.delete_records(6)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            log = replica(nodes[3]).log
            assert (log.log_start_offset, log.recovery.corruption) == (6, [])
            assert values_of(await fetch(nodes, 3, 6)) == VALUES[6:8]

    run(main())


def test_the_only_replica_reports_a_hole_and_serves_the_records_around_it() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            await make_topic(nodes, 1, min_isr=1)
            for nth, value in enumerate(VALUES):
                if nth and nth % COUNT == 0:
                    replica(nodes[1]).log.roll()
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            segments = list(replica(nodes[1]).log.segments)
            await nodes.stop(1)
            remove(0, 2)(nodes, 1, segments)
            for _ in range(2):
                await nodes.start(1)
                await led_by(nodes, 1)
                assert [damage[3:] for damage in replica(nodes[1]).log.recovery.corruption] == [
                    (0, 4),
                    (8, 12),
                ]
                for offset in (0, 3, 8, 11):
                    assert (await fetch(nodes, 1, offset)).error_code == ErrorCode.CORRUPT_MESSAGE
                assert values_of(await fetch(nodes, 1, 4)) == VALUES[4:8]
                assert values_of(await fetch(nodes, 1, 12)) == VALUES[12:16]
                await nodes.stop(1)
            await nodes.start(1)
            await led_by(nodes, 1)
            replica(nodes[1]).log.delete_records(12)
            assert replica(nodes[1]).log.recovery.corruption == []

    run(main())
