"""A follower quarantines a log that its leader cannot continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from penstock.broker.base.system_ports import SystemClock
from penstock.model.errors import ErrorCode
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica

NODES = (1, 2, 3)


#: per segment
COUNT = 4
VALUES = [b"value %d" % nth for nth in range(5 * COUNT)]
#: longer than the retention of a topic by default
_AHEAD_MS: Final = 8 * 86_400_000


class ClockAhead(SystemClock):
    """A wall clock that is days ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + _AHEAD_MS


async def leader_starts_at_6(nodes: Cluster, configs: Mapping[str, str] | None = None) -> None:
    """Broker 3 has stopped with the offsets 0 to 3, and its leader's log goes from 6 to 7."""
    await make_topic(nodes, *NODES, configs=configs)
    assert (await produce(nodes, 1, *VALUES[:4])).error_code == ErrorCode.NONE
    await eventually(lambda: replica(nodes[3]).log.high_watermark == 4)
    await nodes.stop(3)
    assert (await produce(nodes, 1, *VALUES[4:8])).error_code == ErrorCode.NONE
    await eventually(lambda: replica(nodes[2]).log.high_watermark == 8)
    replica(nodes[1]).log.delete_records(6)


async def follows_from_6(nodes: Cluster) -> None:
    await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
    log = replica(nodes[3]).log
    assert (log.log_start_offset, log.end_offset) == (6, 8)


@pytest.mark.parametrize("clock", [SystemClock(), ClockAhead()], ids=["right clock", "clock ahead"])
def test_a_follower_sets_its_log_aside_when_the_leaders_log_starts_behind_its_end(clock: SystemClock) -> None:
    """Its own retention would keep the records, so nothing here says that deleting them is right.

    A clock that is days ahead makes them look expired. It is not trusted.
    """

    async def main() -> None:
        async with cluster(3) as nodes:
            await leader_starts_at_6(nodes)
            nodes.clocks[3] = clock
            await nodes.start(3)
            await follows_from_6(nodes)
            ((entry,),) = [d.quarantine.entries() for d in nodes[3].stages.storage.partitions.directories]
            assert "starts at 6" in entry.reason

    run(main())


def test_a_follower_drops_records_that_its_own_retention_would_drop() -> None:
    """Once its clock was compared: until then it waits, because the log may be as large as its disk."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await leader_starts_at_6(nodes, {"retention.ms": "1"})
            await nodes.start(3)
            await follows_from_6(nodes)
            assert [d.quarantine.entries() for d in nodes[3].stages.storage.partitions.directories] == [[]]

    run(main())
