"""What the broker counts about itself, cheaply enough to be always on.

A latency goes into a bucket by the power of two of its microseconds: one list index per request. Exporters
read these; nothing on the hot path knows them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ApiStats", "Histogram", "Metrics"]

#: 1 µs, 2 µs, 4 µs and so on: more than any number of nanoseconds needs, so that none has to be checked
BUCKETS: Final = 64


class Histogram:
    """Counts by power of two of microseconds; `bucket[i]` holds what took less than 2**i µs."""

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
    """Requests of one API."""

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
        #: requests for an API or version that we do not serve, by (api key, version); bounded by `unknown`
        self.unsupported: dict[tuple[int, int], int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_errors = 0
        self.fetch_errors = 0
        #: between replicas, apart from what clients send and get
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: of partitions led here
        self.isr_shrinks = 0
        self.isr_expands = 0
        #: of sealed segments, checked by the scrubber; ranges found damaged, and made sound again
        self.scrubbed_bytes = 0
        self.corruption_found = 0
        self.corruption_repaired = 0
        #: ranges in which replicas differed though their checksums are right
        self.differences_found = 0
        #: damaged ranges that no replica has, and that coordinators were loaded without
        self.coordinator_ranges_lost = 0
        #: data directories that take no records at the moment
        self.full_directories = 0

    def api(self, name: str) -> ApiStats:
        return self.apis.setdefault(name, ApiStats(name))

    def count_unsupported(self, api_key: int, version: int) -> None:
        # A hostile client could name 2³² of them.
        if len(self.unsupported) < 256 or (api_key, version) in self.unsupported:
            self.unsupported[api_key, version] = self.unsupported.get((api_key, version), 0) + 1
