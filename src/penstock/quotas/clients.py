"""The quotas of clients: one set of meters for each client that has a quota.

Clients that share a quota share its meter. A meter survives a change of its limit, so that a client cannot
escape by an alteration. Meters without recent use equal new ones and are removed.

Owned by: the event loop's thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.quotas.entities import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Found,
    Quotas,
    find_quota,
)
from penstock.quotas.rates import DEFAULT_WINDOWS, Meter, MutationMeter, Windows

__all__ = ["ClientLimits", "ClientQuotas"]

#: clients whose limits are remembered; client ids are texts that clients choose
_KNOWN_MAX: Final = 4096
#: meters from which on idle ones are looked for
_METERS_MIN: Final = 1024


class ClientLimits(NamedTuple):
    """The meters of one client; None where it has no quota."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutations: MutationMeter | None


class ClientQuotas:
    """Finds the meters of clients. `update` takes the quotas of the cluster."""

    def __init__(
        self, windows: Windows = DEFAULT_WINDOWS, mutation_windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._quotas: Quotas = {}
        self._generation: object = None
        #: whether any client has a quota
        self.has_any = False
        self._known: dict[tuple[str, str], ClientLimits | None] = {}
        self._meters: dict[tuple[str, str, str], Meter | MutationMeter] = {}
        self._meters_max = _METERS_MIN

    def update(self, quotas: Quotas, generation: object) -> None:
        """Take over the quotas of the cluster; `generation` is another object for other quotas."""
        if generation is self._generation:
            return
        self._quotas, self._generation = quotas, generation
        self.has_any = any(
            key in CLIENT_KEYS for entity, values in quotas.items() if entity[0][0] != IP for key in values
        )
        self._known.clear()
        if not self.has_any:
            self._meters.clear()

    def limits(self, user: str, client_id: str, now_ms: int) -> ClientLimits | None:
        """The meters of a client; None if it has no quota."""
        client = user, client_id
        try:
            return self._known[client]
        except KeyError:
            pass
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        found = self._known[client] = self._find(user, client_id, now_ms)
        return found

    def _find(self, user: str, client_id: str, now_ms: int) -> ClientLimits | None:
        found = {key: find_quota(self._quotas, key, user, client_id) for key in CLIENT_KEYS}
        if not any(found.values()):
            return None
        if len(self._meters) >= self._meters_max:
            self._remove_idle(now_ms)
        produce = self._meter(PRODUCER_BYTE_RATE, found[PRODUCER_BYTE_RATE])
        fetch = self._meter(CONSUMER_BYTE_RATE, found[CONSUMER_BYTE_RATE])
        request = self._meter(REQUEST_PERCENTAGE, found[REQUEST_PERCENTAGE])
        mutations = self._meter(CONTROLLER_MUTATION_RATE, found[CONTROLLER_MUTATION_RATE])
        assert not isinstance(produce, MutationMeter)
        assert not isinstance(fetch, MutationMeter)
        assert not isinstance(request, MutationMeter)
        assert not isinstance(mutations, Meter)
        return ClientLimits(produce, fetch, request, mutations)

    def _meter(self, key: str, found: Found | None) -> Meter | MutationMeter | None:
        if found is None:
            return None
        name = key, found.user, found.client_id
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = self._new_meter(key, found.limit)
        meter.limit = found.limit
        return meter

    def _new_meter(self, key: str, limit: float) -> Meter | MutationMeter:
        if key == CONTROLLER_MUTATION_RATE:
            return MutationMeter(self._mutation_windows, limit)
        # Like Kafka: one request may take long, and a throttle of more than a window would punish its client.
        most_ms = self._windows.size_ms if key == REQUEST_PERCENTAGE else None
        return Meter(self._windows, limit, most_ms)

    def _remove_idle(self, now_ms: int) -> None:
        """Remove the meters that equal new ones. The next search comes when there are twice as many."""
        self._meters = {name: meter for name, meter in self._meters.items() if not meter.is_idle(now_ms)}
        self._known.clear()
        self._meters_max = max(_METERS_MIN, 2 * len(self._meters))
