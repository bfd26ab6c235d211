"""Gaps in the responses of a leader: refused, unless the leader explains them by compaction."""

from __future__ import annotations

from struct import Struct

from penstock.model.errors import ErrorCode
from penstock.records.record import iter_batches
from penstock.storage.segment_files import LOG
from tests.broker.events import Events
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica, stored

_LONG = Struct(">q")
_SHIFT = 200


async def written_alone(nodes: Cluster) -> None:
    """A topic of three brokers, with records that broker 2 does not have so far."""
    await make_topic(nodes, 1, 2, 3)
    assert (await produce(nodes, 1, b"first")).error_code == ErrorCode.NONE
    await eventually(lambda: replica(nodes[2]).log.end_offset == 1)
    await nodes.kill(2)
    await eventually(lambda: described(nodes[1]).isr == [1, 3])
    for nth in range(5):
        assert (await produce(nodes, 1, b"value %d" % nth)).error_code == ErrorCode.NONE


def shift_batch(nodes: Cluster, nth: int) -> None:
    """Raise the base offset of a batch in the file of broker 1, which runs."""
    log = replica(nodes[1]).log
    position, header = list(iter_batches(stored(replica(nodes[1]))))[nth]
    file = nodes.disks[1].open(log.segments.active.path(LOG))
    file.pwrite(_LONG.pack(header.base_offset + _SHIFT), position)
    log.segments.active.recent.clear()


def test_a_follower_refuses_a_gap_and_the_leader_checks_its_segment(events: Events) -> None:
    """The leader has written the batch itself, so that it sends it without a look at it."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await written_alone(nodes)
            shift_batch(nodes, 3)
            await nodes.start(2)
            healthy = stored(replica(nodes[3]))
            await eventually(lambda: bool(events.of("offset_gap_refused")))
            assert replica(nodes[2]).log.end_offset == 3
            assert not replica(nodes[2]).log.segments.active.is_compacted
            ((_, fields),) = events.of("offset_gap_refused")[:1]
            assert (fields["offset"], fields["next_offset"]) == (3, 3 + _SHIFT)
            await nodes[1].stages.healing.scrubber.repair_all()
            await eventually(lambda: replica(nodes[2]).log.end_offset == 6)
            assert [stored(replica(nodes[node])) for node in (1, 2)] == [healthy] * 2

    run(main())


def test_a_follower_accepts_a_gap_that_compaction_has_left(events: Events) -> None:
    """The topic was compacted before: the leader knows that, the follower does not."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await written_alone(nodes)
            log = replica(nodes[1]).log
            log.segments.active.mark_compacted()
            shift_batch(nodes, 5)
            log.end_offset += _SHIFT
            await nodes.start(2)
            await eventually(lambda: replica(nodes[2]).log.end_offset == 6 + _SHIFT)
            assert events.of("offset_gap_explained")
            assert stored(replica(nodes[2])) == stored(replica(nodes[1]))

    run(main())
