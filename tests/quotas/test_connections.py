"""Rates of new connections (KIP-612)."""

from __future__ import annotations

from penstock.quotas.connections import ConnectionRates, address_rates
from penstock.quotas.entities import Entity


def test_connections_within_the_rate_do_not_wait() -> None:
    rates = ConnectionRates()
    assert [rates.wait_ms({"": 10}, "A", 0) for _ in range(100)] == [0] * 100
    assert 0 < rates.wait_ms({"": 10}, "A", 0) <= 1000


def test_the_listener_has_a_rate_of_its_own() -> None:
    rates = ConnectionRates()
    for _ in range(20):
        rates.wait_ms({"": 10, "A": 2}, "A", 0)
    assert rates.wait_ms({"": 10, "A": 2}, "A", 0) > 0
    assert rates.wait_ms({"": 10, "A": 2}, "B", 0) == 0


def test_an_address_beyond_its_rate_is_refused_and_not_counted() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0},
        (("ip", None),): {"connection_creation_rate": 5.0},
        (("user", "u"),): {"producer_byte_rate": 1.0},
    }
    rates = ConnectionRates()
    rates.set_address_rates(address_rates(quotas))
    assert [rates.refusal_ms("10.0.0.1", 0) for _ in range(10)] == [0] * 10
    first = rates.refusal_ms("10.0.0.1", 0)
    assert first > 0 and rates.refusal_ms("10.0.0.1", 0) == first
    assert [rates.refusal_ms("10.0.0.2", 0) for _ in range(50)] == [0] * 50


def test_without_quotas_addresses_are_not_counted() -> None:
    rates = ConnectionRates()
    assert rates.refusal_ms("10.0.0.1", 0) == 0
    assert not rates._by_address
