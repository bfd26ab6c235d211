"""Counters of copies to the archive, by topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CopyStats", "LedTopic", "TopicCopies"]


@dataclass(slots=True)
class TopicCopies:
    """The copies of a topic's partitions that one broker makes."""

    #: objects that were put and verified, and their bytes
    requests: int = 0
    bytes: int = 0
    #: turns that have failed
    errors: int = 0
    #: of the partitions that this broker leads: what waits for a copy in sealed segments
    lag_bytes: int = 0
    lag_segments: int = 0
    #: and the batches in the archive
    archived_bytes: int = 0
    #: replicas whose local segments stay because the archive contradicts their logs
    suspended: int = 0


class LedTopic(NamedTuple):
    """The partitions of a topic that this broker leads."""

    lag_bytes: int
    lag_segments: int
    archived_bytes: int

    def plus(self, lag_bytes: int, lag_segments: int, archived_bytes: int) -> LedTopic:
        """With one partition more."""
        return LedTopic(
            self.lag_bytes + lag_bytes,
            self.lag_segments + lag_segments,
            self.archived_bytes + archived_bytes,
        )


class CopyStats:
    """The copies of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCopies] = {}
        #: whether the archive could be opened; None if there was no reason to try
        self.available: bool | None = None

    def of(self, topic: str) -> TopicCopies:
        return self.topics.setdefault(topic, TopicCopies())

    def set_led(self, led: Mapping[str, LedTopic]) -> None:
        """Replace what the led partitions have, by topic; topics without one have nothing."""
        for topic in {*self.topics, *led}:
            found, each = self.of(topic), led.get(topic, LedTopic(0, 0, 0))
            found.lag_bytes, found.lag_segments, found.archived_bytes = each

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
            total.archived_bytes += each.archived_bytes
            total.suspended += each.suspended
        return total
