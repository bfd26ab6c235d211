"""Which partitions a query reads, as of now."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.reading.connection import Cluster
from penstock.reading.errors import WrongOption

__all__ = ["Selection", "selected"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: of named topics, of topics that match a pattern, or named ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


def selected(
    cluster: Cluster, selection: Selection, *, missing_is_error: bool = True
) -> list[TopicPartition]:
    """The partitions that a query reads, as of now."""
    if selection.pattern is not None:
        response = cluster.refresh(None)
        pattern = re.compile(selection.pattern)
        names = [topic.name for topic in response.topics if not topic.is_internal and topic.name]
        # As Spark's connector has it: found anywhere in a name, unless the pattern says otherwise.
        topics = [name for name in names if pattern.search(name)]
    else:
        topics = sorted(set(selection.topics) | {partition.topic for partition in selection.partitions})
        cluster.refresh(topics)
    counts = {topic: cluster.view.partitions(topic) for topic in topics}
    found = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    missing = [topic for topic, count in counts.items() if not count]
    if selection.partitions:
        missing = [str(partition) for partition in selection.partitions if partition not in found]
        found = [partition for partition in selection.partitions if partition in found]
    if missing and missing_is_error:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        raise WrongOption(f"{code}: the cluster has no {', '.join(missing)}")
    return found
