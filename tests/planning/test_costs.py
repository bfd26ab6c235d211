"""The processor time of leaders and followers."""

from __future__ import annotations

import pytest

from penstock.planning.costs import costs_of
from tests.planning.samples import coefficients, workload


def test_batches_of_the_measured_size_have_the_measured_costs() -> None:
    costs = costs_of(workload(batch_bytes=1_000_000), coefficients(record_us=0))
    assert costs.append * 1e9 == pytest.approx(0.5)
    assert costs.serve * 1e9 == pytest.approx(0.1)
    assert costs.follow * 1e9 == pytest.approx(1.4)
    assert costs.leader(3) * 1e9 == pytest.approx(0.5 + 0.3)


def test_smaller_batches_cost_a_request_each() -> None:
    costs = costs_of(workload(batch_bytes=10_000), coefficients(record_us=0))
    requests_per_gb = 1e9 / 10_000 - 1e9 / 1_000_000
    assert costs.append * 1e9 == pytest.approx(0.5 + requests_per_gb * 20e-6)
    assert costs.serve * 1e9 == pytest.approx(0.1 + requests_per_gb * 35e-6)


def test_a_message_that_is_larger_than_a_batch_is_a_batch() -> None:
    large = costs_of(workload(size_bytes=100_000, batch_bytes=16_384), coefficients())
    assert large == costs_of(workload(size_bytes=100_000, batch_bytes=100_000), coefficients())


def test_small_messages_cost_more_for_each_byte() -> None:
    small, large = (
        costs_of(workload(size_bytes=size, batch_bytes=1_000_000), coefficients()) for size in (100, 1000)
    )
    assert (small.append - large.append) * 1e9 == pytest.approx(0.02 * (10 - 1))
