"""Served requests: the fields of their log event, and the limit of events."""

from __future__ import annotations

from penstock.observability.requests import EventLimit, PartitionRange, ServedRequest, log_fields


def test_the_log_event_has_all_stages_and_the_ranges() -> None:
    request = ServedRequest(
        api="Produce",
        version=9,
        listener="PLAINTEXT",
        client_id="app",
        peer="10.0.0.1:5",
        began_unix_ns=10**18,
        duration_ns=1_500_000_000,
        stages_ns={"handle": 500_000_000, "wait": 1_000_000_000, "flush": 250_000},
        partitions=[PartitionRange("t", 0, 10, 5), PartitionRange("t", 1, 7)],
    )
    assert log_fields(request) == {
        "api": "Produce",
        "version": 9,
        "listener": "PLAINTEXT",
        "client_id": "app",
        "peer": "10.0.0.1:5",
        "total_ms": 1500.0,
        "handle_ms": 500.0,
        "wait_ms": 1000.0,
        "flush_ms": 0.25,
        "partitions": "t-0@10+5 t-1@7",
    }


def test_events_are_limited_per_minute_and_the_next_one_has_the_number_left_out() -> None:
    limit = EventLimit(2)
    assert [limit.admit(1000 + second) for second in range(5)] == [0, 0, None, None, None]
    assert [limit.admit(1060 + second) for second in range(3)] == [3, 0, None]
    limit.per_minute = 0
    assert limit.admit(2000) is None
