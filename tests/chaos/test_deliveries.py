"""The anomalies of a share group in a history."""

from __future__ import annotations

from chaos.deliveries import LATE_S, Delivery, Lost, counts, queue_anomalies
from chaos.history import Outcome, Send

SENT = [Send("writer", 0, 1, Outcome.ACKNOWLEDGED), Send("writer", 0, 2, Outcome.UNKNOWN)]


def released(at: float) -> Delivery:
    return Delivery(1, at, is_accepted=False)


def accepted(at: float, answered_at: float | None) -> Delivery:
    return Delivery(1, at, is_accepted=True, accepted_at=answered_at)


def test_an_accepted_value_is_neither_lost_nor_delivered_again() -> None:
    assert queue_anomalies(SENT, [released(5.0), accepted(6.0, 7.0), released(8.0)]) == {}


def test_a_value_that_no_member_accepted_is_lost() -> None:
    assert queue_anomalies(SENT, []) == {"queue-lost": [Lost(SENT[0], [])]}
    assert queue_anomalies(SENT, [released(5.0)]) == {"queue-lost": [Lost(SENT[0], [released(5.0)])]}


def test_an_acceptance_counts_although_its_response_is_lost() -> None:
    assert queue_anomalies(SENT, [accepted(5.0, None)]) == {}


def test_a_delivery_long_after_the_acceptance() -> None:
    late = released(7.5 + LATE_S)
    assert queue_anomalies(SENT, [accepted(5.0, 7.0), late]) == {"queue-redelivered": [late]}


def test_the_deliveries_of_each_client_are_counted() -> None:
    deliveries = [
        Delivery(1, 5.0, is_accepted=False, client="queue"),
        Delivery(1, 6.0, is_accepted=True, accepted_at=7.0, client="queue"),
        Delivery(2, 6.0, is_accepted=True, client="java"),
    ]
    assert counts(deliveries, ["queue", "queue", "java"]) == {
        "queue": "2 deliveries, 1 accepted, 1 of these answered",
        "java": "1 deliveries, 1 accepted, 0 of these answered",
    }
