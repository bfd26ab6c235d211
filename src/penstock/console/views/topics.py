"""Topics as the list and the page of one topic show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.console.views.samples import (
    History,
    Key,
    Partition,
    Sample,
    as_points,
    is_internal,
    lag_cells,
)
from penstock.model.ids import format_topic_id
from penstock.observability.lag import Lag

__all__ = ["COLUMNS", "TOPIC_COLUMNS", "TopicOffsets", "partition_rows", "topic_page", "topic_rows"]


@dataclass(frozen=True, slots=True)
class _Topic:
    """What the columns of the list are computed from."""

    name: str
    partitions: list[Partition]
    history: History
    is_internal: bool
    size: int | None
    messages: int | None
    lag: Lag | None


class Column(NamedTuple):
    """A column of the list of topics."""

    #: its title; empty if the page needs the value, and has no column for it
    label: str
    #: how the page shows and sorts the value: a name of `FORMS` in `static/pages/topics.js`
    form: str
    #: None if the value is not known
    value: Callable[[_Topic], Any]
    #: left out where there is little space
    wide: bool = False


#: The columns in their order. `lag` is the largest lag of a group on the topic, and whether it is exact; None
#: if no group has committed. `messages` is the sum of the end offsets: the number of records that were ever
#: written, transaction markers included.
COLUMNS: Final[dict[str, Column]] = {
    "name": Column("Topic", "topic", lambda topic: topic.name),
    "state": Column(
        "State",
        "state",
        lambda topic: [
            sum(p.leader < 0 for p in topic.partitions),
            sum(len(p.isr) < len(p.replicas) for p in topic.partitions),
        ],
    ),
    "partitions": Column("Partitions", "count", lambda topic: len(topic.partitions)),
    "replicas": Column(
        "Replicas",
        "count",
        lambda topic: max((len(p.replicas) for p in topic.partitions), default=0),
        wide=True,
    ),
    "records_per_s": Column("Records in", "rate", lambda topic: topic.history.record_rate(topic.name)),
    "bytes_per_s": Column(
        "Bytes in", "byte_rate", lambda topic: topic.history.byte_rate(topic.name), wide=True
    ),
    "messages": Column("End offsets", "records", lambda topic: topic.messages, wide=True),
    "size": Column("Size", "bytes", lambda topic: topic.size),
    "lag": Column("Lag", "lag", lambda topic: topic.lag and [topic.lag.records, topic.lag.is_exact]),
    "internal": Column("", "", lambda topic: topic.is_internal),
}
#: Columns for the page. Rows are arrays in this order: 10,000 objects would repeat every name.
TOPIC_COLUMNS: Final = [
    {"id": name, "label": each.label, "form": each.form, "wide": each.wide} for name, each in COLUMNS.items()
]


def topic_rows(history: History) -> list[list[Any]]:
    """One row per topic, in the order of `COLUMNS`."""
    sample = history.last
    assert sample is not None, "there is a sample before there is a list"
    by_topic: dict[str, list[Partition]] = {name: [] for name in sample.topic_ids}
    for (name, _), partition in sample.partitions.items():
        by_topic[name].append(partition)
    lags = _lags(sample)
    sizes, ends = _sums(sample.sizes), _sums(sample.ends)
    topics = (
        _Topic(
            name,
            partitions,
            history,
            is_internal(sample, name),
            sizes.get(name),
            ends.get(name),
            lags.get(name),
        )
        for name, partitions in sorted(by_topic.items())
    )
    return [[column.value(topic) for column in COLUMNS.values()] for topic in topics]


def _sums(values: Mapping[Key, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (topic, _), value in values.items():
        sums[topic] = sums.get(topic, 0) + value
    return sums


def _lags(sample: Sample) -> dict[str, Lag]:
    """The largest lag of a group in each topic."""
    worst: dict[str, Lag] = {}
    for group in sample.groups or ():
        for topic in {key[0] for key in group.commits}:
            lag = group.lag(sample, topic)
            if lag is not None:
                worst[topic] = max(worst.get(topic, lag), lag)
    return worst


class TopicOffsets(NamedTuple):
    """The offsets of a topic's partitions, as far as their leaders have responded."""

    starts: Mapping[Key, int]
    ends: Mapping[Key, int]
    #: of tiered storage: the first offsets on disks, and the last ones in the archive
    local_starts: Mapping[Key, int] = {}
    last_copied: Mapping[Key, int] = {}


def partition_rows(sample: Sample, topic: str, offsets: TopicOffsets) -> list[dict[str, Any]]:
    """The partitions of a topic with leaders, replicas, offsets and sizes. Offsets are strings."""
    rows = []
    for key in sorted(key for key in sample.partitions if key[0] == topic):
        p = sample.partitions[key]
        last = offsets.last_copied.get(key)
        rows.append(
            {
                "partition": key[1],
                "leader": None if p.leader < 0 else p.leader,
                "epoch": p.epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline": list(p.offline),
                "preferred": bool(p.replicas) and p.leader == p.replicas[0],
                "start": _text(offsets.starts.get(key)),
                "end": _text(offsets.ends.get(key)),
                "local_start": _text(offsets.local_starts.get(key)),
                "copied": None if last is None else str(last + 1),
                "size": sample.sizes.get(key),
            }
        )
    return rows


def _text(offset: int | None) -> str | None:
    return None if offset is None else str(offset)


def topic_page(history: History, topic: str, offsets: TopicOffsets) -> dict[str, Any] | None:
    """A topic with its partitions, its groups and its rate over time; None if there is no such topic."""
    sample = history.last
    if sample is None or topic not in sample.topic_ids:
        return None
    rows = partition_rows(sample, topic, offsets)
    return {
        "name": topic,
        "id": format_topic_id(sample.topic_ids[topic]),
        "internal": topic in sample.internal,
        "partitions": rows,
        "tiered": any(row["copied"] is not None for row in rows),
        "size": _known_sum(row["size"] for row in rows),
        "records_per_s": history.record_rate(topic),
        "bytes_per_s": history.byte_rate(topic),
        "rate": as_points(history.topics.get(topic)),
        "groups": _groups(sample, topic),
        "gap": sample.gaps["groups"].shown() if "groups" in sample.gaps else None,
    }


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _groups(sample: Sample, topic: str) -> list[dict[str, Any]] | None:
    """Groups with an offset in the topic; None if groups are not known."""
    if sample.groups is None:
        return None
    return [
        {
            "group": group.name,
            "state": group.state,
            "kind": group.kind,
            **lag_cells(group.lag(sample, topic)),
        }
        for group in sample.groups
        if any(key[0] == topic for key in group.commits)
    ]
