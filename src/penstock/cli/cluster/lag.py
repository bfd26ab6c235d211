"""Sizes of partitions and the lag of their replicas, from DescribeLogDirs of all brokers.

A Penstock leader reports the lag of each follower in records and in time, also of followers that are down. Of
other clusters, each follower reports its own lag in records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cli.direct import DirectLine
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

__all__ = ["PartitionLag", "partition_lags", "read_lags"]

#: (topic, partition)
Key = tuple[str, int]


@dataclass(slots=True)
class PartitionLag:
    """One partition: the bytes of its largest replica, and the lag by follower."""

    size: int = 0
    records: dict[int, int] = field(default_factory=dict)
    #: seconds; only of leaders that report them
    seconds: dict[int, float] = field(default_factory=dict)


def partition_lags(answers: Mapping[int, DescribeLogDirsResponse | None]) -> dict[Key, PartitionLag]:
    """Sizes and lags by partition, from the answers of brokers; None for one that has not responded."""
    found: dict[Key, PartitionLag] = {}
    for broker, answer in answers.items():
        for directory in () if answer is None else answer.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    lag = found.setdefault((topic.name, partition.partition_index), PartitionLag())
                    lag.size = max(lag.size, partition.partition_size)
                    for follower in partition.follower_lags:
                        lag.records[follower.broker_id] = follower.records
                        lag.seconds[follower.broker_id] = follower.milliseconds / 1000
                    if partition.offset_lag:
                        lag.records.setdefault(broker, partition.offset_lag)
    return found


def read_lags(
    line: DirectLine, addresses: Mapping[int, str], topics: Mapping[str, Iterable[int]] | None = None
) -> dict[Key, PartitionLag]:
    """The lag of partitions that the brokers at `addresses` report; of all topics if `topics` is None."""
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=list(each)) for name, each in topics.items()]
    request = DescribeLogDirsRequest(topics=wanted)
    answers = line.send_each(addresses.values(), DESCRIBE_LOG_DIRS, request)
    return partition_lags({broker: answers[address] for broker, address in addresses.items()})
