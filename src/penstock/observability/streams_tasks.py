"""Tasks of streams groups (KIP-1071): their names, and the partitions that they read."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.wire.apis.streams_group_describe import DescribedGroup, Member
from penstock.wire.apis.streams_group_heartbeat import TaskIds

__all__ = ["read_partitions", "task_names"]


def task_names(tasks: Iterable[TaskIds]) -> list[str]:
    """The names that Kafka Streams has for tasks: `SUBTOPOLOGY_PARTITION`."""
    return sorted(f"{each.subtopology_id}_{partition}" for each in tasks for partition in each.partitions)


def read_partitions(group: DescribedGroup, member: Member) -> dict[str, list[int]]:
    """The partitions that the active tasks of a member read, by topic.

    A task reads the partition of its number of each source topic of its subtopology. A topic with fewer
    partitions than the subtopology has tasks lacks some of them.
    """
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    sources = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in subtopologies
    }
    found: dict[str, set[int]] = {}
    for tasks in member.assignment.active_tasks:
        for topic in sources.get(tasks.subtopology_id, ()):
            found.setdefault(topic, set()).update(tasks.partitions)
    return {topic: sorted(partitions) for topic, partitions in sorted(found.items())}
