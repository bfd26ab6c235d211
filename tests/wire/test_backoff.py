from __future__ import annotations

from penstock.wire.backoff import Backoff


def test_waits_double_up_to_the_limit_and_start_over_after_a_success() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.failed(0.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.succeeded()
    assert backoff.failed(0.0) == 0.1


def test_jitter_spreads_a_wait_by_a_fifth() -> None:
    assert Backoff(1.0, 1.0).failed(-1.0) == 0.8
    assert Backoff(1.0, 1.0).failed(1.0) == 1.2


def test_a_thousand_failures_wait_for_the_limit() -> None:
    backoff = Backoff(0.001, 30.0)
    assert [backoff.failed(0.0) for _ in range(1000)][-1] == 30.0
