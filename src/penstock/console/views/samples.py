"""Samples of a cluster, the rates between two of them, and a bounded history.

Records per second are the growth of the end offsets. Bytes per second are the growth of the leaders' logs;
retention makes a log smaller, so that a rate is never negative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.wire.apis.describe_cluster import DescribeClusterResponse
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from penstock.wire.apis.describe_quorum import DescribeQuorumResponsePartition
from penstock.wire.apis.metadata import MetadataResponse

__all__ = ["GroupSample", "History", "Key", "Partition", "Sample", "Series", "group_lag", "partitions_of"]

#: (topic, partition)
Key: TypeAlias = tuple[str, int]
#: points of one series: fifteen minutes at three seconds
POINTS_MAX: Final = 300
#: topics and groups that have a series
SERIES_MAX: Final = 1000


class Partition(NamedTuple):
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class GroupSample(NamedTuple):
    """A group as its coordinator lists it, with its committed offsets."""

    name: str
    state: str
    kind: str
    protocol: str
    coordinator: int
    #: of a share group, the start offsets of its partitions
    commits: Mapping[Key, int]
    #: lags that the coordinator of a share group states: records that are delivered count no more
    lags: Mapping[Key, int] = {}

    def lag(self, ends: Mapping[Key, int]) -> int | None:
        """The records that the group has yet to read; None if it has no offset."""
        if not self.lags:
            return group_lag(self.commits, ends)
        return sum(self.lags.values()) + (group_lag(_without(self.commits, self.lags), ends) or 0)


def _without(commits: Mapping[Key, int], others: Mapping[Key, int]) -> dict[Key, int]:
    return {key: offset for key, offset in commits.items() if key not in others}


@dataclass(slots=True)
class Sample:
    """A cluster at one time. `None` stands for a part that a broker has refused or does not support."""

    time_s: float
    metadata: MetadataResponse
    cluster: DescribeClusterResponse | None = None
    quorum: DescribeQuorumResponsePartition | None = None
    log_dirs: Mapping[int, DescribeLogDirsResponse | None] = field(default_factory=dict)
    ends: Mapping[Key, int] = field(default_factory=dict)
    groups: list[GroupSample] | None = None
    partitions: dict[Key, Partition] = field(default_factory=dict)
    #: bytes of the leader's log, or of any replica if the leader has not responded
    sizes: dict[Key, int] = field(default_factory=dict)
    #: names of topics that brokers have marked as internal
    internal: set[str] = field(default_factory=set)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    #: when `log_dirs` were read; earlier than the sample if they are those of a sample before
    sized_s: float = -1.0

    def __post_init__(self) -> None:
        if self.sized_s < 0:
            self.sized_s = self.time_s
        self.partitions = partitions_of(self.metadata)
        self.internal = {t.name or "" for t in self.metadata.topics if t.is_internal}
        self.topic_ids = {t.name or "": t.topic_id for t in self.metadata.topics}
        self.sizes = _sizes(self.partitions, self.log_dirs)


def partitions_of(metadata: MetadataResponse) -> dict[Key, Partition]:
    return {
        (topic.name or "", p.partition_index): Partition(
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for topic in metadata.topics
        for p in topic.partitions
    }


def _sizes(
    partitions: Mapping[Key, Partition], log_dirs: Mapping[int, DescribeLogDirsResponse | None]
) -> dict[Key, int]:
    sizes: dict[Key, int] = {}
    for broker, response in log_dirs.items():
        for directory in () if response is None else response.results:
            for topic in directory.topics:
                for p in topic.partitions:
                    key = (topic.name, p.partition_index)
                    known = partitions.get(key)
                    if p.is_future_key or known is None:
                        continue
                    if known.leader == broker or key not in sizes:
                        sizes[key] = p.partition_size
    return sizes


def group_lag(commits: Mapping[Key, int], ends: Mapping[Key, int]) -> int | None:
    """The records that a group has yet to read; None if it has committed no offset.

    Partitions without a commit do not count: a missing commit is not offset 0.
    """
    if not commits:
        return None
    return sum(max(0, ends[key] - offset) for key, offset in commits.items() if key in ends)


class Series:
    """Points of one value over time."""

    __slots__ = ("points",)

    def __init__(self) -> None:
        self.points: deque[tuple[float, float]] = deque(maxlen=POINTS_MAX)

    def add(self, time_s: float, value: float) -> None:
        self.points.append((round(time_s, 1), round(value, 2)))


class History:
    """The last sample, rates since the one before, and series. Owned by one sampler."""

    def __init__(self) -> None:
        self.last: Sample | None = None
        self.records_per_s: dict[str, float] = {}
        self.bytes_per_s: dict[str, float] = {}
        self.totals: dict[str, Series] = {name: Series() for name in ("records", "bytes", "lag")}
        self.topics: dict[str, Series] = {}
        self.groups: dict[str, Series] = {}

    def add(self, sample: Sample) -> None:
        before, self.last = self.last, sample
        if before is not None:
            self.records_per_s = _rates(sample.ends, before.ends, sample.time_s - before.time_s)
            if sample.sized_s != before.sized_s:
                self.bytes_per_s = _rates(sample.sizes, before.sizes, sample.sized_s - before.sized_s)
            self.totals["records"].add(sample.time_s, sum(self.records_per_s.values()))
            self.totals["bytes"].add(sample.time_s, sum(self.bytes_per_s.values()))
        self._add_topics(sample)
        self._add_groups(sample)

    def _add_topics(self, sample: Sample) -> None:
        for name in [name for name in self.topics if name not in sample.topic_ids]:
            del self.topics[name]
        for name in [*self.topics, *(n for n in self.records_per_s if n not in self.topics)]:
            rate = self.records_per_s.get(name, 0.0)
            if name in self.topics or (rate and len(self.topics) < SERIES_MAX):
                self.topics.setdefault(name, Series()).add(sample.time_s, rate)

    def _add_groups(self, sample: Sample) -> None:
        groups = sample.groups or []
        names = {group.name for group in groups}
        for name in [name for name in self.groups if name not in names]:
            del self.groups[name]
        total = 0
        for group in groups:
            lag = group.lag(sample.ends)
            total += lag or 0
            if lag is not None and (group.name in self.groups or len(self.groups) < SERIES_MAX):
                self.groups.setdefault(group.name, Series()).add(sample.time_s, lag)
        if sample.groups is not None:
            self.totals["lag"].add(sample.time_s, total)


def _rates(after: Mapping[Key, int], before: Mapping[Key, int], seconds: float) -> dict[str, float]:
    grown: dict[str, int] = {}
    seconds = max(seconds, 1e-3)
    for key, value in after.items():
        growth = value - before.get(key, value)
        if growth > 0:
            grown[key[0]] = grown.get(key[0], 0) + growth
    return {topic: growth / seconds for topic, growth in grown.items()}


def as_points(series: Series | None, last: int | None = None) -> list[tuple[float, float]]:
    """The points of a series for a page, the newest `last` of them."""
    points: Iterable[Any] = () if series is None else series.points
    found = list(points)
    return found if last is None else found[-last:]
