"""Counters: traffic outlives topics in the totals, and names that clients choose are bounded."""

from __future__ import annotations

from penstock.broker.base.metrics import Histogram, Metrics, Traffic


def test_the_traffic_of_a_deleted_topic_stays_in_the_totals() -> None:
    traffic = Traffic()
    stats = traffic.of_topic(b"id", "orders")
    assert traffic.of_topic(b"id", "orders") is stats
    stats.records_in, stats.bytes_in, stats.bytes_out = 3, 300, 100
    traffic.drop(b"id")
    traffic.drop(b"unknown")
    assert not traffic.topics
    total = traffic.total()
    assert (total.records_in, total.bytes_in, total.bytes_out) == (3, 300, 100)
    # A topic of the same name is another topic.
    assert traffic.of_topic(b"other", "orders").records_in == 0


def test_buckets_are_powers_of_two_of_a_64th_of_a_millisecond() -> None:
    histogram = Histogram()
    for ns in (0, 15_624, 15_625, 999_999, 1_000_000):
        histogram.observe(ns)
    assert histogram.buckets[:8] == [2, 1, 0, 0, 0, 0, 1, 1]
    assert histogram.count == 5
    histogram.observe(2**62)  # no latency is too long


def test_users_that_quotas_throttle_are_bounded() -> None:
    metrics = Metrics()
    for index in range(100_000):
        metrics.throttled(f"user-{index}", 5)
    assert len(metrics.throttles) == 101
    assert metrics.throttles["other"].count == 99_900
    assert metrics.throttled_requests == 100_000


def test_error_codes_are_counted_and_no_error_is_not() -> None:
    stats = Metrics().api("Fetch")
    stats.count_errors([0, 3, 3, 0, 6])
    assert stats.errors == {3: 2, 6: 1}
