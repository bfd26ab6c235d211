"""Rates and throttle times, with the numbers of Kafka's own tests (KIP-13, KIP-124, KIP-599)."""

from __future__ import annotations

import pytest

from penstock.quotas.rates import Meter, MutationMeter, Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)


def test_a_rate_counts_complete_windows_from_the_start() -> None:
    """One second of data is a tenth of the rate, not all of it (Kafka: Rate.windowSize)."""
    rate = Rate(WINDOWS)
    rate.record(1000.0, 0)

    assert rate.measure(500) == (1000 / 10.5, 10_500)


def test_old_samples_are_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(1000.0, 0)

    assert rate.measure(10_999)[0] > 0
    assert rate.measure(11_000)[0] == 0
    assert rate.is_idle(11_000)


def test_the_throttle_time_is_that_of_kafka() -> None:
    """As ClientQuotaManagerTest.testQuotaViolation: 10 s at 400 B/s, then 2300 B at 0.5 s: 2100 ms."""
    meter = Meter(WINDOWS, 500.0)
    now_ms = 0
    for _ in range(10):
        assert meter.charge(400, now_ms) == 0
        now_ms += 1000
    now_ms += 500

    assert meter.charge(2300, now_ms) == 2100


def test_a_refund_takes_a_value_back() -> None:
    meter = Meter(WINDOWS, 100.0)
    assert meter.charge(10_000, 0) > 0
    meter.refund(10_000, 0)

    assert meter.charge(1000, 0) == 0


def test_the_most_at_once_is_not_throttled() -> None:
    meter = Meter(WINDOWS, 100.0)
    assert meter.most_at_once == 1000
    assert meter.charge(meter.most_at_once, 0) == 0


def test_the_throttle_of_a_request_percentage_is_bounded() -> None:
    assert Meter(WINDOWS, 1.0, 1000).charge(1e6, 0) == 1000


@pytest.mark.parametrize("interval_ms", [50, 300, 1300])
def test_a_client_that_obeys_reaches_its_rate(interval_ms: int) -> None:
    meter, now_ms, sent = Meter(WINDOWS, 1000.0), 0, 0
    while now_ms < 120_000:
        sent += 400
        now_ms += max(interval_ms if interval_ms < 400 else 0, meter.charge(400, now_ms)) or 1

    assert sent / 120 == pytest.approx(1000, rel=0.1)


def test_a_bucket_starts_full_and_refills() -> None:
    """As TokenBucketTest.testRecord: a burst of 20 at 5 per second over 2 windows of 2 s."""
    bucket = TokenBucket(Windows(2, 2000), 5.0)
    assert bucket.tokens(0) == 20
    bucket.take(60, 0)
    assert bucket.tokens(2000) == -30
    assert bucket.tokens(10_000) == 10
    assert bucket.tokens(1_000_000) == 20


def test_a_strict_quota_takes_nothing_while_in_debt() -> None:
    """As StrictControllerMutationQuotaTest: a burst of 110 at 10 per second; 90 too many wait 9 s."""
    meter = MutationMeter(WINDOWS, 10.0)
    assert meter.charge_strictly(200, 0) == 0
    assert meter.charge_strictly(10, 0) == 9000
    assert meter.charge_strictly(10, 8500) == 500
    assert meter.charge_strictly(10, 9000) == 0


def test_a_permissive_quota_takes_and_throttles() -> None:
    meter = MutationMeter(WINDOWS, 10.0)
    assert meter.charge(200, 0) == 9000
    assert meter.charge(10, 0) == 10_000
