"""Samples of a cluster, the rates between two of them, and a bounded history.

Records per second are the growth of the end offsets. Bytes per second are the growth of the leaders' logs;
retention makes a log smaller, so that a rate is never negative. Totals leave out internal topics: each
commit of an offset is a record of one.

Invariant: a rate is known only between two samples of the time that a page is open. Two samples within
`_APART_MIN_S` have no rate of their own, because the moment of a response is not exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.console.views.knowledge import UNKNOWN, Gap
from penstock.observability.lag import Lag, group_lag
from penstock.wire.apis.describe_cluster import DescribeClusterResponse
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse
from penstock.wire.apis.describe_quorum import DescribeQuorumResponsePartition
from penstock.wire.apis.metadata import MetadataResponse

__all__ = [
    "GroupSample",
    "History",
    "Key",
    "Partition",
    "Sample",
    "Series",
    "as_points",
    "is_internal",
    "lag_cells",
    "partitions_of",
    "total_lag",
]

#: (topic, partition)
Key: TypeAlias = tuple[str, int]
#: points of one series: fifteen minutes at three seconds
POINTS_MAX: Final = 300
#: topics and groups that have a series
SERIES_MAX: Final = 1000
#: samples that are closer have no rate between them, and those that are further apart have no rate of now
_APART_MIN_S: Final = 1.0
_APART_MAX_S: Final = 150.0


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
    #: why the offsets are not known; None if they are
    gap: Gap | None = None

    def lag(self, sample: Sample, topic: str | None = None) -> Lag | None:
        """The records that the group has yet to read, of one topic or of all; None if that is not known."""
        topics = {key[0] for key in self.commits} if topic is None else {topic}
        if self.gap is not None or not topics:
            return None
        # A commit stays when its topic is deleted.
        there = (sample.partitions, sample.ends)
        own = [key for key in self.commits if key[0] in topics and any(key in known for known in there)]
        if self.kind == "share":
            stated = sum(self.lags[key] for key in own if key in self.lags)
            rest = [key for key in own if key not in self.lags]
            counted = group_lag(self.commits, rest, {}, sample.ends)
            return Lag(stated, not rest) if counted is None else counted.plus(Lag(stated))
        keys = dict.fromkeys(own)
        for name in topics:
            keys.update(dict.fromkeys(sample.by_topic.get(name, ())))
        return group_lag(self.commits, keys, sample.starts, sample.ends) if keys else Lag(0)


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
    #: first offsets of partitions without a commit in topics that groups read
    starts: Mapping[Key, int] = field(default_factory=dict)
    #: why parts are missing or incomplete: groups, ends, sizes
    gaps: dict[str, Gap] = field(default_factory=dict)
    #: when the end offsets were read: later than `time_s`, as connections may have been opened first
    ended_s: float = -1.0
    partitions: dict[Key, Partition] = field(default_factory=dict)
    #: bytes of the leader's log, or of any replica if the leader has not responded
    sizes: dict[Key, int] = field(default_factory=dict)
    #: names of topics that brokers have marked as internal
    internal: set[str] = field(default_factory=set)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    #: when `log_dirs` were read; earlier than the sample if they are those of a sample before
    sized_s: float = -1.0
    #: partitions of each topic
    by_topic: dict[str, list[Key]] = field(default_factory=dict)
    #: lag by group; None if it is not known
    lags: dict[str, Lag | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ended_s < 0:
            self.ended_s = self.time_s
        if self.sized_s < 0:
            self.sized_s = self.time_s
        self.partitions = partitions_of(self.metadata)
        self.internal = {t.name or "" for t in self.metadata.topics if t.is_internal}
        self.topic_ids = {t.name or "": t.topic_id for t in self.metadata.topics}
        self.sizes = _sizes(self.partitions, self.log_dirs)
        for key in self.partitions:
            self.by_topic.setdefault(key[0], []).append(key)
        self.lags = {group.name: group.lag(self) for group in self.groups or ()}
        self._find_gaps()

    def _find_gaps(self) -> None:
        """Note the partitions whose size or end is not known, unless there is a better reason."""
        unsized = len(self.partitions) - len(self.sizes)
        if unsized:
            self.gaps.setdefault("sizes", Gap(UNKNOWN, f"the size of {_partitions(unsized)} is not known"))
        unread = sum(key not in self.ends for key in self.partitions)
        if unread:
            self.gaps.setdefault("ends", Gap(UNKNOWN, f"the end of {_partitions(unread)} is not known"))


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def is_internal(sample: Sample, topic: str) -> bool:
    return topic in sample.internal or topic.startswith("__")


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


class Series:
    """Points of one value over time."""

    __slots__ = ("points",)

    def __init__(self) -> None:
        self.points: deque[tuple[float, float]] = deque(maxlen=POINTS_MAX)

    def add(self, time_s: float, value: float) -> None:
        self.points.append((round(time_s, 1), round(value, 2)))


class _Growth:
    """Growth of the partitions of each topic per second, between two moments that are apart enough."""

    __slots__ = ("_since", "per_s")

    def __init__(self) -> None:
        #: by topic, without topics that have none; None while it is not known
        self.per_s: dict[str, float] | None = None
        #: the time and the values that the next rates begin at
        self._since: tuple[float, Mapping[Key, int]] | None = None

    def add(self, time_s: float, values: Mapping[Key, int]) -> bool:
        """Returns true if there are new rates."""
        apart_s = _APART_MAX_S if self._since is None else time_s - self._since[0]
        if self._since is None or apart_s >= _APART_MAX_S:
            self._since, self.per_s = (time_s, values), None
            return False
        if apart_s < _APART_MIN_S:
            return False
        self.per_s = _rates(values, self._since[1], apart_s)
        self._since = (time_s, values)
        return True


class History:
    """The last sample, rates since the one before, and series. Owned by one sampler."""

    def __init__(self) -> None:
        self.last: Sample | None = None
        self._records = _Growth()
        self._bytes = _Growth()
        self.totals: dict[str, Series] = {name: Series() for name in ("records", "bytes", "lag")}
        self.topics: dict[str, Series] = {}
        self.groups: dict[str, Series] = {}

    def add(self, sample: Sample) -> None:
        self.last = sample
        self._add_rates(sample)
        self._add_topics(sample)
        self._add_groups(sample)

    @property
    def records_per_s(self) -> dict[str, float] | None:
        return self._records.per_s

    @property
    def bytes_per_s(self) -> dict[str, float] | None:
        return self._bytes.per_s

    def record_rate(self, topic: str) -> float | None:
        return None if self.records_per_s is None else round(self.records_per_s.get(topic, 0.0), 1)

    def byte_rate(self, topic: str) -> int | None:
        return None if self.bytes_per_s is None else round(self.bytes_per_s.get(topic, 0.0))

    def total_rate(self, rates: Mapping[str, float] | None) -> float | None:
        """Of all topics that are not internal."""
        if rates is None or self.last is None:
            return None
        return sum(rate for topic, rate in rates.items() if not is_internal(self.last, topic))

    def _add_rates(self, sample: Sample) -> None:
        if self._records.add(sample.ended_s, sample.ends):
            self._add_total("records", sample.time_s, self.records_per_s)
        self._bytes.add(sample.sized_s, sample.sizes)
        self._add_total("bytes", sample.time_s, self.bytes_per_s)

    def _add_total(self, name: str, time_s: float, rates: Mapping[str, float] | None) -> None:
        total = self.total_rate(rates)
        if total is not None:
            self.totals[name].add(time_s, total)

    def _add_topics(self, sample: Sample) -> None:
        rates = self.records_per_s
        for name in [name for name in self.topics if name not in sample.topic_ids]:
            del self.topics[name]
        if rates is None:
            return
        for name in [*self.topics, *(n for n in rates if n not in self.topics)]:
            rate = rates.get(name, 0.0)
            if name in self.topics or (rate and len(self.topics) < SERIES_MAX):
                self.topics.setdefault(name, Series()).add(sample.time_s, rate)

    def _add_groups(self, sample: Sample) -> None:
        if sample.groups is None:
            return
        complete = "groups" not in sample.gaps
        for name in [name for name in self.groups if name not in sample.lags and complete]:
            del self.groups[name]
        for name, lag in sample.lags.items():
            if lag is not None and (name in self.groups or len(self.groups) < SERIES_MAX):
                self.groups.setdefault(name, Series()).add(sample.time_s, lag.records)
        total = total_lag(sample)
        if total is not None and total.is_exact:
            self.totals["lag"].add(sample.time_s, total.records)


def lag_cells(lag: Lag | None) -> dict[str, Any]:
    """A lag for a page: None is not known, and without `lag_exact` it is a lower bound."""
    if lag is None:
        return {"lag": None, "lag_exact": False, "uncommitted": 0}
    return {"lag": lag.records, "lag_exact": lag.is_exact, "uncommitted": lag.uncommitted}


def total_lag(sample: Sample) -> Lag | None:
    """The lag of all groups; None if groups are not known, or the lag of none of them is."""
    if sample.groups is None:
        return None

    def known_of(group: GroupSample) -> bool:
        return sample.lags[group.name] is not None

    known = [lag for lag in sample.lags.values() if lag is not None]
    total = reduce(Lag.plus, known, Lag(0))
    unread = (group.gap is not None or bool(group.commits) for group in sample.groups if not known_of(group))
    unknown = "groups" in sample.gaps or any(unread)
    if unknown and not known:
        return None
    return total._replace(is_exact=total.is_exact and not unknown)


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
