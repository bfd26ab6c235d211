"""What the members of a share group got, and the anomalies in it.

| anomaly | meaning |
|---|---|
| queue-lost | no member got and accepted an acknowledged value |
| queue-redelivered | a value was delivered long after its acceptance was answered |

An acceptance counts although its response is lost with a broker: the member has got the value.
A response may be late, and a leader that was replaced may deliver accepted values until it learns of it. So a
delivery counts only if it comes more than `LATE_S` after the acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from chaos.history import Outcome, Send

__all__ = ["LATE_S", "Delivery", "Lost", "counts", "queue_anomalies"]

#: longer than a replaced leader serves clients
LATE_S: Final = 20.0


@dataclass(slots=True)
class Delivery:
    """One value as a member got it, and when its acceptance was answered; None if it was not."""

    value: int
    at: float
    is_accepted: bool
    accepted_at: float | None = None
    #: the kind of client
    client: str = ""
    #: how often a broker had acquired the record then; 0 if the client does not say
    delivery_count: int = 0


class Lost(NamedTuple):
    """A value that no member accepted, and its deliveries."""

    send: Send
    deliveries: list[Delivery]


def queue_anomalies(sends: Iterable[Send], deliveries: Sequence[Delivery]) -> dict[str, Sequence[object]]:
    accepted: dict[int, float] = {}
    done = {delivery.value for delivery in deliveries if delivery.is_accepted}
    released: dict[int, list[Delivery]] = {}
    for delivery in deliveries:
        if delivery.value not in done:
            released.setdefault(delivery.value, []).append(delivery)
        if delivery.accepted_at is not None:
            first = accepted.get(delivery.value, delivery.accepted_at)
            accepted[delivery.value] = min(first, delivery.accepted_at)
    found: dict[str, Sequence[object]] = {
        "queue-lost": [
            Lost(send, released.get(send.value, []))
            for send in sends
            if send.outcome is Outcome.ACKNOWLEDGED and send.value not in done
        ],
        "queue-redelivered": [
            delivery
            for delivery in deliveries
            if delivery.at > accepted.get(delivery.value, delivery.at) + LATE_S
        ],
    }
    return {name: cases for name, cases in found.items() if cases}


def counts(deliveries: Sequence[Delivery], clients: Iterable[str]) -> dict[str, str]:
    """For each kind of client: its deliveries, those it accepted, and the acceptances that were answered."""
    found: dict[str, str] = {}
    for client in dict.fromkeys(clients):
        own = [delivery for delivery in deliveries if delivery.client == client]
        accepted = [delivery for delivery in own if delivery.is_accepted]
        answered = sum(delivery.accepted_at is not None for delivery in accepted)
        found[client] = f"{len(own)} deliveries, {len(accepted)} accepted, {answered} of these answered"
    return found
