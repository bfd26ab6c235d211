"""The broker's counters and latency histograms, cheap enough to be always on.

The bucket of a latency is the power of two of its multiple of 15.625 µs, which costs one list index per
request. The bounds are then 1 ms, 2 ms, 4 ms and so on, and six finer ones below. Exporters read the
counters. The hot path does not know the exporters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.remote.stats import RemoteStats
from penstock.tiering.stats import CopyStats

__all__ = ["ApiStats", "Histogram", "Metrics", "TopicStats", "Traffic"]

#: enough for any number of nanoseconds, so that `observe` needs no check
BUCKETS: Final = 64
#: users whose throttle times are counted one by one
_USERS_MAX: Final = 100
_OTHER: Final = "other"
#: 2**6 of these are a millisecond
UNIT_NS: Final = 15_625


class Histogram:
    """Counts by power of two; `buckets[i]` counts latencies from 2**(i-1) to 2**i units of 15.625 µs."""

    __slots__ = ("buckets", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_ns = 0

    def observe(self, ns: int) -> None:
        self.total_ns += ns
        self.buckets[(ns // UNIT_NS).bit_length()] += 1

    @property
    def count(self) -> int:
        return sum(self.buckets)


class ApiStats:
    """The counters of one API's requests."""

    __slots__ = ("errors", "failures", "latency", "name", "slow")

    def __init__(self, name: str) -> None:
        self.name = name
        #: requests that ended in an unexpected exception
        self.failures = 0
        #: requests that took at least `penstock.slow.request.ms`
        self.slow = 0
        self.latency = Histogram()
        #: error codes in responses
        self.errors: dict[int, int] = {}

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes of a response. 0 is no error."""
        errors = self.errors
        for code in codes:
            if code:
                errors[code] = errors.get(code, 0) + 1


class TopicStats:
    """The traffic of one topic's clients on this broker, from its start on, whatever replicas it has."""

    __slots__ = ("bytes_in", "bytes_out", "name", "records_in")

    def __init__(self, name: str) -> None:
        self.name = name
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0


class Traffic:
    """The traffic of all topics. That of a deleted topic counts in the totals alone."""

    __slots__ = ("_deleted", "topics")

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicStats] = {}
        self._deleted = TopicStats("")

    def of_topic(self, topic_id: bytes, name: str) -> TopicStats:
        """The counters of a topic, which end with the topic."""
        stats = self.topics.get(topic_id)
        if stats is None:
            stats = self.topics[topic_id] = TopicStats(name)
        return stats

    def drop(self, topic_id: bytes) -> None:
        """Forget a deleted topic."""
        stats, deleted = self.topics.pop(topic_id, None), self._deleted
        if stats is not None:
            deleted.records_in += stats.records_in
            deleted.bytes_in += stats.bytes_in
            deleted.bytes_out += stats.bytes_out

    def total(self) -> TopicStats:
        """The traffic of all topics since the start. No number of it ever falls."""
        total = TopicStats("")
        for stats in (self._deleted, *self.topics.values()):
            total.records_in += stats.records_in
            total.bytes_in += stats.bytes_in
            total.bytes_out += stats.bytes_out
        return total


class Metrics:
    """All counters of one broker."""

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.apis: dict[str, ApiStats] = {}
        #: the same of the internal listener
        self.internal_apis: dict[str, ApiStats] = {}
        self.traffic = traffic or Traffic()
        #: requests for an API or version that is not supported, by (api key, version); bounded
        self.unsupported: dict[tuple[int, int], int] = {}
        self.produce_errors = 0
        self.fetch_errors = 0
        #: bytes of replication, which are not part of `bytes_in` and `bytes_out`
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: ISR changes of partitions that this broker leads
        self.isr_shrinks = 0
        #: those whose replicas have not left by a controlled shutdown
        self.isr_shrinks_unplanned = 0
        self.isr_expands = 0
        #: bytes of sealed segments that the scrubber has checked; damaged ranges found, and repaired
        self.scrubbed_bytes = 0
        self.corruption_found = 0
        self.corruption_repaired = 0
        #: ranges in which replicas differed although their checksums are valid
        self.differences_found = 0
        #: damaged ranges that no replica has, and that coordinators were loaded without
        self.coordinator_ranges_lost = 0
        #: requests that a client quota has throttled, and the sum of their throttle times
        self.throttled_requests = 0
        self.throttle_ms = 0
        #: throttle times by user, of a bounded number of users
        self.throttles: dict[str, Histogram] = {}
        #: data directories that are full
        self.full_directories = 0

        #: spans and metrics that were exported, and those that were dropped, by signal
        self.exported: dict[str, int] = {}
        self.export_dropped: dict[str, int] = {}
        #: reads of a mounted backup
        self.remote = RemoteStats()
        #: copies to the archive of tiered storage
        self.copies = CopyStats()
        #: errors of follower fetchers: partitions that could not be followed
        self.replication_errors = 0

    @property
    def bytes_in(self) -> int:
        return self.traffic.total().bytes_in

    @property
    def bytes_out(self) -> int:
        return self.traffic.total().bytes_out

    @property
    def messages_in(self) -> int:
        return self.traffic.total().records_in

    def throttled(self, user: str, throttle_ms: int) -> None:
        """A client quota has throttled a request of `user`."""
        self.throttled_requests += 1
        self.throttle_ms += throttle_ms
        if user not in self.throttles and len(self.throttles) >= _USERS_MAX:
            user = _OTHER
        self.throttles.setdefault(user, Histogram()).observe(throttle_ms * 1_000_000)

    def api(self, name: str) -> ApiStats:
        return self.apis.setdefault(name, ApiStats(name))

    def internal_api(self, name: str) -> ApiStats:
        return self.internal_apis.setdefault(name, ApiStats(name))

    def count_unsupported(self, api_key: int, version: int) -> None:
        # A hostile client could send 2³² different combinations.
        if len(self.unsupported) < 256 or (api_key, version) in self.unsupported:
            self.unsupported[api_key, version] = self.unsupported.get((api_key, version), 0) + 1
