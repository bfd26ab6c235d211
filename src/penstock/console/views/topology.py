"""The cluster page: which broker holds and leads which partition, and moves with their progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.views.overview import broker_rows, quorum_view
from penstock.console.views.samples import Key, Sample, is_internal
from penstock.wire.apis.list_partition_reassignments import ListPartitionReassignmentsResponse

__all__ = ["moves", "topology"]

#: partitions of a map in one response; a page draws the visible ones only
PARTITIONS_MAX: Final = 10_000


def topology(sample: Sample, text: str, *, internal: bool = False) -> dict[str, Any]:
    """Brokers, the quorum, and the replicas of the partitions whose topic contains `text`.

    Partitions with a problem come first, so that a limit never hides them. Internal topics without a problem
    are folded unless they are wanted.
    """
    found = [key for key in sample.partitions if text.lower() in key[0].lower()]
    problems = {key for key in found if _has_problem(sample, key)}
    hidden = {topic for topic in sample.by_topic if not internal and is_internal(sample, topic)}
    keys = [key for key in found if key in problems or key[0] not in hidden]
    gap = sample.gaps.get("topics")
    keys.sort(key=lambda key: (key not in problems, key))
    rows = []
    for key in keys[:PARTITIONS_MAX]:
        p = sample.partitions[key]
        rows.append([key[0], key[1], p.leader, list(p.replicas), list(p.isr)])
    return {
        "brokers": broker_rows(sample),
        "quorum": quorum_view(sample),
        "partitions": rows,
        "total": len(keys),
        "problems": len(problems),
        # Why there may be more partitions.
        "gap": None if gap is None else gap.shown(),
        "folded": len(hidden & {key[0] for key in found}),
    }


def _has_problem(sample: Sample, key: Key) -> bool:
    p = sample.partitions[key]
    return p.leader < 0 or len(p.isr) < len(p.replicas)


def moves(
    response: ListPartitionReassignmentsResponse, sample: Sample, replica_sizes: Mapping[tuple[Key, int], int]
) -> list[dict[str, Any]]:
    """Ongoing reassignments; the progress is the share of the leader's bytes that new replicas have.

    It is None if the size is not known.
    """
    found = []
    for topic in response.topics:
        for p in topic.partitions:
            key = (topic.name, p.partition_index)
            size = sample.sizes.get(key)
            have = sum(min(size or 0, replica_sizes.get((key, broker), 0)) for broker in p.adding_replicas)
            wanted = None if size is None else size * len(p.adding_replicas)
            in_sync = set(sample.partitions[key].isr) if key in sample.partitions else set()
            done = set(p.adding_replicas) <= in_sync
            share = None if wanted is None else round(have / wanted, 3) if wanted else 0.0
            found.append(
                {
                    "topic": topic.name,
                    "partition": p.partition_index,
                    "replicas": list(p.replicas),
                    "adding": list(p.adding_replicas),
                    "removing": list(p.removing_replicas),
                    "reason": p.reason,
                    "size": size,
                    "copied": wanted if done else have,
                    "to_copy": wanted,
                    "in_sync": len(set(p.adding_replicas) & in_sync),
                    "progress": 1.0 if done else share,
                }
            )
    return found


def replica_sizes(sample: Sample) -> dict[tuple[Key, int], int]:
    """Bytes of each replica, by partition and broker."""
    return {
        ((topic.name, p.partition_index), broker): p.partition_size
        for broker, answer in sample.log_dirs.items()
        if answer is not None
        for directory in answer.results
        for topic in directory.topics
        for p in topic.partitions
    }
