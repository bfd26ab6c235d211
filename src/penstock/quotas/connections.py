"""Rates of new connections: of the broker, of each listener, of each address.

A connection above the rate of the broker or of its listener has to wait. A connection above the rate of its
address is refused, after a delay. Both times are at most one window, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.quotas.entities import CONNECTION_CREATION_RATE, IP, Quotas
from penstock.quotas.rates import DEFAULT_WINDOWS, Meter, Windows

__all__ = ["ConnectionRates", "address_rates"]

#: a rate that is no limit
UNLIMITED: Final = 2**31 - 1
_METERS_MIN: Final = 1024
_BROKER: Final = ""


def address_rates(quotas: Quotas) -> dict[str | None, float]:
    """The rate of new connections of each address; None is the default of all others."""
    return {
        entity[0][1]: values[CONNECTION_CREATION_RATE]
        for entity, values in quotas.items()
        if entity[0][0] == IP and CONNECTION_CREATION_RATE in values
    }


class ConnectionRates:
    """Meters of new connections."""

    def __init__(self, windows: Windows = DEFAULT_WINDOWS) -> None:
        self._windows = windows
        self._rates: Mapping[str | None, float] = {}
        self._by_address: dict[str, Meter] = {}
        self._by_listener: dict[str, Meter] = {}
        self._meters_max = _METERS_MIN

    def set_address_rates(self, rates: Mapping[str | None, float]) -> None:
        """Take over rates by address in canonical form; None is the default."""
        self._rates = rates
        if not rates:
            self._by_address.clear()

    def wait_ms(self, limits: Mapping[str, int], listener: str, now_ms: int) -> int:
        """Count a new connection; how long it waits. `limits` are rates by listener, "" for the broker."""
        waits = 0
        for name in (_BROKER, listener):
            limit = limits.get(name, UNLIMITED)
            if limit <= 0:
                waits = self._windows.size_ms
            elif limit < UNLIMITED:
                meter = self._by_listener.get(name)
                if meter is None:
                    meter = self._by_listener[name] = Meter(self._windows, limit, self._windows.size_ms)
                meter.limit = limit
                waits = max(waits, meter.charge(1, now_ms))
        return waits

    def refusal_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address; 0, or the delay after which it is refused."""
        limit = self._rates.get(address, self._rates.get(None, UNLIMITED))
        if limit >= UNLIMITED:
            return 0
        meter = self._by_address.get(address)
        if meter is None:
            if len(self._by_address) >= self._meters_max:
                self._remove_idle(now_ms)
            meter = self._by_address[address] = Meter(self._windows, limit, self._windows.size_ms)
        meter.limit = limit
        delay_ms = meter.charge(1, now_ms)
        if delay_ms:
            meter.refund(1, now_ms)
        return delay_ms

    def _remove_idle(self, now_ms: int) -> None:
        kept = {address: meter for address, meter in self._by_address.items() if not meter.is_idle(now_ms)}
        self._by_address = kept
        self._meters_max = max(_METERS_MIN, 2 * len(kept))
