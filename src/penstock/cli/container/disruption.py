"""Whether a broker may stop now: which partitions and which votes would be missing. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.metadata.image import ClusterImage

__all__ = ["obstacles"]

#: more of them say nothing more
_NAMED = 3


def obstacles(
    image: ClusterImage, broker: int, minimum: Mapping[str, int], voters: Mapping[int, bool]
) -> list[str]:
    """Why the broker should not stop; nothing if all partitions take writes without it.

    `minimum` is `min.insync.replicas` by topic, `voters` are those of the metadata quorum with whether each
    responds. A partition with one replica cannot wait for another one. One with as many replicas as its
    minimum waits for all others, and then takes no writes until the broker is back.
    """
    lacking = []
    for partition in image.partitions_on(broker):
        topic = image.topics_by_id[partition.topic_id].name
        others = [replica for replica in partition.isr if replica != broker]
        wanted = min(minimum.get(topic, 1), len(partition.replicas) - 1)
        if broker in partition.isr and len(others) < wanted:
            lacking.append(f"{topic}-{partition.index}")
    found = []
    if lacking:
        named = ", ".join(sorted(lacking)[:_NAMED])
        more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        found.append(f"too few other in-sync replicas of {named}{more}")
    if broker in voters:
        found += _quorum(broker, voters)
    return found


def _quorum(broker: int, voters: Mapping[int, bool]) -> Iterable[str]:
    """A single voter never has a quorum without itself, so it need not wait for one."""
    there = sum(responds for id_, responds in voters.items() if id_ != broker)
    if len(voters) > 1 and 2 * there <= len(voters):
        yield f"only {there} of {len(voters)} voters would be left"
