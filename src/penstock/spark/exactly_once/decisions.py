"""Decisions: the record that says which transactions of a batch count. Pure.

The driver writes one record per (query, batch) into a compacted topic, keyed by the query, before it ends
the first transaction. From then on the batch is written: a run that finds the decision commits the
transactions that it names, and writes nothing. A tombstone closes a query for good; batch writes leave one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.twophase.outcomes import PreparedTransaction

__all__ = ["CLOSED", "Decision", "DecisionDamaged", "Prepared", "decode_decision", "encode_decision"]

_VERSION: Final = 1
#: the batch of a closed query: later than any other
CLOSED: Final = (1 << 63) - 1


class DecisionDamaged(ValueError):
    """A record of the topic of decisions that this version cannot read."""


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A transaction whose rows are all acknowledged, and that its producer has left open."""

    transactional_id: str
    producer_id: int
    epoch: int
    rows: int

    @property
    def transaction(self) -> PreparedTransaction:
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch)


class Decision(msgspec.Struct, frozen=True):
    """The transactions that are the rows of a batch: these are committed, all others are aborted."""

    query: str
    batch: int
    transactions: tuple[Prepared, ...]
    at_ms: int = 0

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(each.transactional_id for each in self.transactions)


class _Document(msgspec.Struct, forbid_unknown_fields=False):
    v: int
    batch: int
    at_ms: int
    #: what all transactional ids begin with
    start: str
    #: (rest of the transactional id, producer id, epoch, rows)
    transactions: list[tuple[str, int, int, int]]


def encode_decision(decision: Decision) -> bytes:
    start = _common_start(each.transactional_id for each in decision.transactions)
    transactions = [
        (each.transactional_id[len(start) :], each.producer_id, each.epoch, each.rows)
        for each in decision.transactions
    ]
    return msgspec.json.encode(_Document(_VERSION, decision.batch, decision.at_ms, start, transactions))


def decode_decision(query: str, value: bytes | None) -> Decision:
    """The decision of a record's value; DecisionDamaged if it has none."""
    if value is None:
        return Decision(query, CLOSED, ())
    try:
        document = msgspec.json.decode(value, type=_Document)
    except msgspec.DecodeError as e:
        raise DecisionDamaged(f"the decision of query {query} cannot be read: {e}") from e
    if document.v != _VERSION:
        raise DecisionDamaged(f"the decision of query {query} has version {document.v}, not {_VERSION}")
    transactions = (Prepared(document.start + rest, *numbers) for rest, *numbers in document.transactions)
    return Decision(query, document.batch, tuple(transactions), document.at_ms)


def _common_start(texts: Iterable[str]) -> str:
    texts = list(texts)
    if not texts:
        return ""
    first, last = min(texts), max(texts)
    size = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:size]
