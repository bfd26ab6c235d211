"""The broker's counters and latency histograms, cheap enough to be always on.

The bucket of a latency is the power of two of its microseconds, which costs one list index per request.
Exporters read the counters. The hot path does not know the exporters.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ApiStats", "Histogram", "Metrics"]

#: 1 µs, 2 µs, 4 µs and so on: enough for any number of nanoseconds, so that `observe` needs no check
BUCKETS: Final = 64


class Histogram:
    """Counts by power of two of microseconds; `buckets[i]` counts latencies below 2**i µs."""

    __slots__ = ("buckets", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_ns = 0

    def observe(self, ns: int) -> None:
        self.total_ns += ns
        self.buckets[(ns // 1000).bit_length()] += 1

    @property
    def count(self) -> int:
        return sum(self.buckets)


class ApiStats:
    """The counters of one API's requests."""

    __slots__ = ("failures", "latency", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        #: requests that ended in an unexpected exception
        self.failures = 0
        self.latency = Histogram()


class Metrics:
    """All counters of one broker."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiStats] = {}
        #: requests for an API or version that is not supported, by (api key, version); bounded
        self.unsupported: dict[tuple[int, int], int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_errors = 0
        self.fetch_errors = 0
        #: bytes of replication, which are not part of `bytes_in` and `bytes_out`
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: ISR changes of partitions that this broker leads
        self.isr_shrinks = 0
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
        #: data directories that are full
        self.full_directories = 0

    def api(self, name: str) -> ApiStats:
        return self.apis.setdefault(name, ApiStats(name))

    def count_unsupported(self, api_key: int, version: int) -> None:
        # A hostile client could send 2³² different combinations.
        if len(self.unsupported) < 256 or (api_key, version) in self.unsupported:
            self.unsupported[api_key, version] = self.unsupported.get((api_key, version), 0) + 1
