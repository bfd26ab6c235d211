"""Copies in a topic are counted by source and id."""

from __future__ import annotations

from penstock.bridge.message import copy_headers
from penstock.bridge.tally import Tally
from tests.bridge.fakes import message


def test_copies_and_their_ids() -> None:
    tally = Tally()
    for number in (1, 2, 2):
        tally.add(copy_headers(message(number)))
    tally.add([("penstock-bridge-source", b"amqp")])
    tally.add([("other", None)])
    assert tally.records == 5
    assert tally.rows() == [
        {"source": "amqp", "copies": 1, "distinct": 0, "duplicates": 0, "without_id": 1},
        {"source": "nats", "copies": 3, "distinct": 2, "duplicates": 1, "without_id": 0},
    ]
