"""Counters of copies to the archive, by topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CopyStats", "TopicCopies"]


@dataclass(slots=True)
class TopicCopies:
    """The copies of a topic's partitions that one broker makes."""

    #: objects that were put and verified, and their bytes
    requests: int = 0
    bytes: int = 0
    #: turns that have failed
    errors: int = 0
    #: what waits for a copy, in sealed segments of the partitions that this broker leads
    lag_bytes: int = 0
    lag_segments: int = 0
    #: replicas whose local segments stay because the archive contradicts their logs
    suspended: int = 0


class CopyStats:
    """The copies of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCopies] = {}
        #: whether the archive could be opened; None if there was no reason to try
        self.available: bool | None = None

    def of(self, topic: str) -> TopicCopies:
        return self.topics.setdefault(topic, TopicCopies())

    def set_lags(self, lags: Mapping[str, tuple[int, int]]) -> None:
        """Replace all lags, (bytes, segments) by topic; topics without one have none."""
        for topic, each in self.topics.items():
            if topic not in lags:
                each.lag_bytes = each.lag_segments = 0
        for topic, (size, segments) in lags.items():
            found = self.of(topic)
            found.lag_bytes, found.lag_segments = size, segments

    def set_suspended(self, suspended: Mapping[str, int]) -> None:
        """Replace the numbers of replicas that free no disk, by topic; topics without one have none."""
        for topic in {*self.topics, *suspended}:
            self.of(topic).suspended = suspended.get(topic, 0)

    def total(self) -> TopicCopies:
        total = TopicCopies()
        for each in self.topics.values():
            total.requests += each.requests
            total.bytes += each.bytes
            total.errors += each.errors
            total.lag_bytes += each.lag_bytes
            total.lag_segments += each.lag_segments
            total.suspended += each.suspended
        return total
