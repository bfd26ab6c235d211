"""A follower quarantines a log that its leader cannot continue."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica

NODES = (1, 2, 3)


#: per segment
COUNT = 4
VALUES = [b"value %d" % nth for nth in range(5 * COUNT)]


def test_a_follower_sets_its_log_aside_when_the_leaders_log_starts_behind_its_end() -> None:
    """Its own retention would keep the records, so nothing here says that deleting them is right."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, *NODES)
            assert (await produce(nodes, 1, *VALUES[:4])).error_code == ErrorCode.NONE
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 4)
            await nodes.stop(3)
            assert (await produce(nodes, 1, *VALUES[4:8])).error_code == ErrorCode.NONE
            await eventually(lambda: replica(nodes[2]).log.high_watermark == 8)
            replica(nodes[1]).log.delete_records(6)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            log = replica(nodes[3]).log
            assert (log.log_start_offset, log.end_offset) == (6, 8)
            ((entry,),) = [d.quarantine.entries() for d in nodes[3].partitions.directories]
            assert "starts at 6" in entry.reason

    run(main())
