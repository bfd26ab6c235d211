"""The partitions that tasks of streams groups read."""

from __future__ import annotations

from penstock.observability.streams_tasks import read_partitions, task_names
from penstock.wire.apis.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    Subtopology,
    Topology,
)
from penstock.wire.apis.streams_group_heartbeat import TaskIds, TopicInfo


def test_a_task_reads_its_partition_of_all_sources_of_its_subtopology() -> None:
    topology = Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["orders", "clicks"]),
            Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name="app-repartition")]),
        ]
    )
    active = [
        TaskIds(subtopology_id="0", partitions=[2, 0]),
        TaskIds(subtopology_id="1", partitions=[1]),
        TaskIds(subtopology_id="gone", partitions=[1]),
    ]
    member = Member(
        assignment=Assignment(
            active_tasks=active, standby_tasks=[TaskIds(subtopology_id="1", partitions=[0])]
        )
    )
    group = DescribedGroup(topology=topology, members=[member])
    assert read_partitions(group, member) == {"app-repartition": [1], "clicks": [0, 2], "orders": [0, 2]}
    assert read_partitions(DescribedGroup(topology=None), member) == {}
    assert task_names(active) == ["0_0", "0_2", "1_1", "gone_1"]
