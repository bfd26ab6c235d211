"""ListOffsets by time on a leader with followers: nothing is named that is not committed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.handlers import offsets
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC, make_topic, produce, replica, stop_fetching
from tests.broker.requests import now_ms

MAX_TIMESTAMP = -3
FUTURE_MS = 1 << 50


async def by_time(nodes: Cluster, timestamp: int) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    ((answer,),) = [t.partitions for t in (await nodes.call(1, LIST_OFFSETS, request)).topics]
    return answer


async def offsets_by_time(nodes: Cluster) -> list[int | ErrorCode]:
    """At the very first record, at the one with the largest timestamp, and behind all."""
    answers = [await by_time(nodes, timestamp) for timestamp in (0, MAX_TIMESTAMP, FUTURE_MS)]
    return [ErrorCode(a.error_code) if a.error_code else a.offset for a in answers]


@pytest.mark.parametrize(("new_leader", "unknown"), [(False, -1), (True, ErrorCode.OFFSET_NOT_AVAILABLE)])
def test_records_are_found_by_their_time_when_they_are_committed(
    new_leader: bool, unknown: int | ErrorCode
) -> None:
    """KIP-207: one that has just been elected says when it does not know; of what is committed it does."""

    async def main() -> None:
        async with cluster(1, 1) as nodes:
            await make_topic(nodes, 1, 2)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert await offsets_by_time(nodes) == [0, 0, -1]
            await stop_fetching(nodes[2])
            committed_ms = now_ms()
            await eventually(lambda: now_ms() > committed_ms)
            assert (await produce(nodes, 1, b"b", acks=1)).error_code == ErrorCode.NONE
            leader = replica(nodes[1])
            await eventually(lambda: leader.log.end_offset == 2)
            assert leader.log.high_watermark == 1
            if new_leader:
                assert leader.leadership is not None
                leader.leadership.state.epoch_start_offset = 2
            assert await offsets_by_time(nodes) == [0, unknown, unknown]

    run(main())


def test_a_leader_that_resigns_during_a_search_does_not_answer_that_no_record_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with cluster(1, 1) as nodes:
            await make_topic(nodes, 1, 2)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE

            async def search_and_step_down(partition: Partition, *requested: Any) -> Any:
                await retry_when_cached(partition, *requested)
                partition.step_down()

            monkeypatch.setattr(offsets, "retry_when_cached", search_and_step_down)
            assert (await by_time(nodes, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main())
