"""The view of `penstock top`: rates, sizes and lag by topic and by group, from two looks at a cluster.

Records per second are the growth of the high watermarks, and bytes per second that of the logs. Retention
makes a log smaller, so bytes per second are never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.cluster.lag import PartitionLag, read_lags
from penstock.cli.direct import DirectLine
from penstock.model.addresses import address_text
from penstock.observability.lag import OffsetHistory, group_lag
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.option_groups import Connection

__all__ = ["ClusterSample", "TopView", "add_rates", "committed_offsets", "listed_offsets", "sample"]

_LATEST: Final = -1
_EARLIEST: Final = -2
#: the time between the two looks at a topic
_INTERVAL_S: Final = 1.0
Key = tuple[str, int]
#: committed offsets by group and partition
Commits = Mapping[str, Mapping[Key, int]]


@dataclass(slots=True)
class ClusterSample:
    """A cluster at one time."""

    ends: dict[Key, int] = field(default_factory=dict)
    lags: dict[Key, PartitionLag] = field(default_factory=dict)
    leaders: dict[Key, int] = field(default_factory=dict)
    commits: Commits = field(default_factory=dict)
    #: first offsets of partitions that a group has not committed in a topic that it reads
    starts: dict[Key, int] = field(default_factory=dict)


def sample(line: DirectLine, commits: Commits) -> ClusterSample:
    """Look at all partitions: one request for the metadata, and two or three to each broker."""
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    addresses = {broker.node_id: address_text(broker.host, broker.port) for broker in metadata.brokers}
    found = ClusterSample(commits=commits)
    for topic in metadata.topics:
        for partition in topic.partitions:
            found.leaders[topic.name or "", partition.partition_index] = partition.leader_id
    found.lags = read_lags(line, addresses)
    found.ends = listed_offsets(line, addresses, found.leaders, _LATEST)
    found.starts = listed_offsets(line, addresses, _uncommitted(found), _EARLIEST)
    return found


def _uncommitted(found: ClusterSample) -> dict[Key, int]:
    """Partitions, with their leaders, that a group has not committed in a topic that it reads."""
    reading: dict[str, list[Mapping[Key, int]]] = {}
    for commits in found.commits.values():
        for topic in {key[0] for key in commits}:
            reading.setdefault(topic, []).append(commits)
    return {
        key: leader
        for key, leader in found.leaders.items()
        if any(key not in commits for commits in reading.get(key[0], ()))
    }


def listed_offsets(
    line: DirectLine, addresses: Mapping[int, str], leaders: Mapping[Key, int], when: int
) -> dict[Key, int]:
    """The offsets of partitions by their leaders; one that has not responded leaves its partitions out."""
    found: dict[Key, int] = {}
    for broker, address in addresses.items():
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for (name, index), leader in leaders.items():
            if leader == broker:
                wanted = ListOffsetsPartition(partition_index=index, timestamp=when)
                by_topic.setdefault(name, []).append(wanted)
        topics = [ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()]
        if not topics:
            continue
        answer = line.send_each([address], LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=topics))
        response = answer[address]
        for each in () if response is None else response.topics:
            for listed in each.partitions:
                if not listed.error_code:
                    found[each.name, listed.partition_index] = listed.offset
    return found


def committed_offsets(cluster: Cluster) -> dict[str, dict[Key, int]]:
    """The committed offsets of all groups; a partition without one is left out."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin, found = cluster.admin, {}
    listed = cluster.wait(admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    for group in listed.valid:
        requested = [ConsumerGroupTopicPartitions(group.group_id)]
        (future,) = admin.list_consumer_group_offsets(requested, request_timeout=cluster.timeout_s).values()
        offsets = cluster.wait(future, group.group_id).topic_partitions
        found[group.group_id] = {(tp.topic, tp.partition): tp.offset for tp in offsets if tp.offset >= 0}
    return found


def add_rates(connection: Connection, topics: Iterable[dict[str, Any]]) -> None:
    """Add records and bytes per second to described topics, and the lag of each group in them."""
    view, commits = TopView(), committed_offsets(connection.cluster())
    with connection.direct() as line:
        view.update(sample(line, commits))
        sleep(_INTERVAL_S)
        found = view.update(sample(line, commits))
    rates = {topic["topic"]: topic for topic in found["topics"]}
    for topic in topics:
        rate = rates.get(topic["topic"], {})
        topic["records_per_s"] = rate.get("records_per_s", 0)
        topic["bytes_per_s"] = rate.get("bytes_per_s", 0)
        topic["groups"] = [
            {"group": group["group"], "lag": group["lag"], "lag_s": group["lag_s"]}
            for group in found["groups"]
            if group["topic"] == topic["topic"]
        ]


class TopView:
    """Compares each sample with the one before."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._before: tuple[float, ClusterSample] | None = None
        self._histories: dict[Key, OffsetHistory] = {}

    def update(self, found: ClusterSample) -> dict[str, Any]:
        now = self._now()
        for key, end in found.ends.items():
            self._histories.setdefault(key, OffsetHistory()).add(now, end)
        for key in [key for key in self._histories if key not in found.leaders]:
            del self._histories[key]
        before, self._before = self._before, (now, found)
        seconds = None if before is None else max(now - before[0], 1e-6)
        earlier = ClusterSample() if before is None else before[1]
        return {
            "topics": [
                self._topic(name, found, earlier, seconds)
                for name in sorted({name for name, _ in found.leaders})
            ],
            "groups": [
                self._group(group, topic, offsets, found, now)
                for group, commits in sorted(found.commits.items())
                for topic, offsets in sorted(_by_topic(commits).items())
            ],
        }

    def _topic(
        self, name: str, found: ClusterSample, earlier: ClusterSample, seconds: float | None
    ) -> dict[str, Any]:
        keys = [key for key in found.leaders if key[0] == name]
        lags = [found.lags.get(key, PartitionLag()) for key in keys]
        records = sum(found.ends.get(k, 0) - earlier.ends.get(k, found.ends.get(k, 0)) for k in keys)
        size = sum(lag.size for lag in lags)
        grown = sum(
            found.lags.get(key, PartitionLag()).size - earlier.lags[key].size
            for key in keys
            if key in earlier.lags
        )
        return {
            "topic": name,
            "partitions": len(keys),
            "offline": sum(found.leaders[key] < 0 for key in keys),
            "size": size,
            "records_per_s": None if seconds is None else round(max(0, records) / seconds, 1),
            "bytes_per_s": None if seconds is None else round(max(0, grown) / seconds),
            "replica_lag": max((n for lag in lags for n in lag.records.values()), default=0),
            "replica_lag_s": max((s for lag in lags for s in lag.seconds.values()), default=0.0),
        }

    def _group(
        self, group: str, topic: str, offsets: Mapping[int, int], found: ClusterSample, now: float
    ) -> dict[str, Any]:
        seconds = 0.0
        for index, committed in offsets.items():
            history = self._histories.get((topic, index))
            if history is not None:
                seconds = max(seconds, history.lag_seconds(committed, now))
        keys = [key for key in found.leaders if key[0] == topic]
        lag = group_lag(found.commits[group], keys, found.starts, found.ends)
        shown = {"lag": None if lag is None else lag.records, "lag_s": round(seconds, 1)}
        return {"group": group, "topic": topic, **shown}


def _by_topic(commits: Mapping[Key, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, index), offset in commits.items():
        found.setdefault(topic, {})[index] = offset
    return found
