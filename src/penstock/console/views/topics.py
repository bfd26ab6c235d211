"""Topics as the list and the page of one topic show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.console.views.samples import History, Key, Partition, Sample, as_points, group_lag
from penstock.model.ids import format_topic_id

__all__ = ["TOPIC_FIELDS", "partition_rows", "topic_page", "topic_rows"]

#: The list is sent as arrays, in this order: 10,000 rows of objects would repeat every name.
TOPIC_FIELDS: Final = (
    "name",
    "partitions",
    "replicas",
    "records_per_s",
    "bytes_per_s",
    "size",
    "messages",
    "lag",
    "under_replicated",
    "offline",
    "internal",
)


def topic_rows(history: History) -> list[list[Any]]:
    """One row per topic, in the order of `TOPIC_FIELDS`.

    `lag` is the largest lag of a group on the topic, None if no group has committed. `messages` is the sum of
    the end offsets: the number of records that were ever written, transaction markers included.
    """
    sample = history.last
    assert sample is not None, "there is a sample before there is a list"
    by_topic: dict[str, list[tuple[Key, Partition]]] = {name: [] for name in sample.topic_ids}
    for key, partition in sample.partitions.items():
        by_topic[key[0]].append((key, partition))
    lags = _lags(sample)
    sizes, ends = _sums(sample.sizes), _sums(sample.ends)
    return [
        [
            name,
            len(partitions),
            max((len(p.replicas) for _, p in partitions), default=0),
            round(history.records_per_s.get(name, 0.0), 1),
            round(history.bytes_per_s.get(name, 0.0)),
            sizes.get(name, 0),
            ends.get(name, 0),
            lags.get(name),
            sum(len(p.isr) < len(p.replicas) for _, p in partitions),
            sum(p.leader < 0 for _, p in partitions),
            name in sample.internal or name.startswith("__"),
        ]
        for name, partitions in sorted(by_topic.items())
    ]


def _sums(values: Mapping[Key, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (topic, _), value in values.items():
        sums[topic] = sums.get(topic, 0) + value
    return sums


def _lags(sample: Sample) -> dict[str, int]:
    worst: dict[str, int] = {}
    for group in sample.groups or ():
        for topic, commits in _by_topic(group.commits).items():
            lag = group_lag(commits, sample.ends)
            if lag is not None:
                worst[topic] = max(worst.get(topic, 0), lag)
    return worst


def _by_topic(commits: Mapping[Key, int]) -> dict[str, dict[Key, int]]:
    found: dict[str, dict[Key, int]] = {}
    for key, offset in commits.items():
        found.setdefault(key[0], {})[key] = offset
    return found


def partition_rows(
    sample: Sample, topic: str, starts: Mapping[Key, int], ends: Mapping[Key, int]
) -> list[dict[str, Any]]:
    """The partitions of a topic with leaders, replicas, offsets and sizes. Offsets are strings."""
    rows = []
    for key in sorted(key for key in sample.partitions if key[0] == topic):
        p = sample.partitions[key]
        start, end = starts.get(key), ends.get(key)
        rows.append(
            {
                "partition": key[1],
                "leader": None if p.leader < 0 else p.leader,
                "epoch": p.epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline": list(p.offline),
                "preferred": bool(p.replicas) and p.leader == p.replicas[0],
                "start": None if start is None else str(start),
                "end": None if end is None else str(end),
                "size": sample.sizes.get(key),
            }
        )
    return rows


def topic_page(
    history: History, topic: str, starts: Mapping[Key, int], ends: Mapping[Key, int]
) -> dict[str, Any] | None:
    """A topic with its partitions, its groups and its rate over time; None if there is no such topic."""
    sample = history.last
    if sample is None or topic not in sample.topic_ids:
        return None
    rows = partition_rows(sample, topic, starts, ends)
    return {
        "name": topic,
        "id": format_topic_id(sample.topic_ids[topic]),
        "internal": topic in sample.internal,
        "partitions": rows,
        "size": _known_sum(row["size"] for row in rows),
        "records_per_s": round(history.records_per_s.get(topic, 0.0), 1),
        "bytes_per_s": round(history.bytes_per_s.get(topic, 0.0)),
        "rate": as_points(history.topics.get(topic)),
        "groups": _groups(sample, topic),
    }


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _groups(sample: Sample, topic: str) -> list[dict[str, Any]]:
    found = []
    for group in sample.groups or ():
        commits = _by_topic(group.commits).get(topic)
        if commits:
            lag = group_lag(commits, sample.ends)
            found.append({"group": group.name, "state": group.state, "kind": group.kind, "lag": lag})
    return found
