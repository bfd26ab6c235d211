"""Repairs of compacted logs."""

from __future__ import annotations

from dataclasses import replace

from penstock.model.errors import ErrorCode
from penstock.storage.segment_files import LOG
from tests.broker.healing.rot import flip
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    fetch,
    make_topic,
    produce,
    replica,
    values_of,
)


def test_damage_that_a_compacted_log_begins_within_is_healed() -> None:
    """A topic with deletion and compaction needs no record before its log start."""

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
            partition, scrubber = replica(nodes[1]), nodes[1].stages.healing.scrubber
            segment = partition.log.segments.first
            for position in (segment.size // 2 - 1, segment.size - 1):
                flip(nodes, 1, segment.path(LOG), position)
            await scrubber.scrub(partition)
            assert (await fetch(nodes, 1, 3)).error_code == ErrorCode.CORRUPT_MESSAGE
            await scrubber.repair(partition)
            assert not partition.log.recovery.corruption
            assert values_of(await fetch(nodes, 1, 3)) == [b"c", b"d"]

    run(main())
