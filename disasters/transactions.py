"""A transactional producer: its committed records are in the ledger, its other records no reader may get.

Values of transactions that are aborted do not begin with the topic's name, so that `judge.compare` counts
those that a reader gets as wrong.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from disasters.clients import PARTITIONS, VALUE_BYTES, Client, Place

__all__ = ["Transactions"]

_TIMEOUT_S: Final = 60.0
#: longer than all brokers are down
_TRANSACTION_MS: Final = 300_000
_SETTINGS: Final[dict[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "transaction.timeout.ms": _TRANSACTION_MS,
}


class Transactions:
    """One producer; a transaction at a time, with records in all partitions."""

    def __init__(self, client: Client, topic: str) -> None:
        self._ledger = client.ledger
        self._topic = topic
        self._count = 0
        self._delivered: dict[Place, bytes] = {}
        settings = {
            **_SETTINGS,
            "bootstrap.servers": client.bootstrap,
            "transactional.id": f"{topic}-transactions",
        }
        self._producer = Producer(settings)
        self._producer.init_transactions(_TIMEOUT_S)

    def commit(self, records: int) -> None:
        """Writes and commits a transaction, whose records are then in the ledger."""
        self._write(records, self._topic)
        self._producer.commit_transaction(_TIMEOUT_S)
        self._ledger.acknowledged.update(self._delivered)
        self._ledger.acknowledgements += len(self._delivered)

    def abort(self, records: int) -> None:
        """Writes and aborts a transaction."""
        self.open(records)
        self.abort_open()

    def open(self, records: int) -> None:
        """Writes the records of a transaction that stays open, until all of them are acknowledged."""
        self._write(records, "aborted")
        if missing := self._producer.flush(_TIMEOUT_S):
            raise TimeoutError(f"{missing} records of an open transaction are not acknowledged")

    def abort_open(self) -> None:
        self._producer.abort_transaction(_TIMEOUT_S)

    def _write(self, records: int, kind: str) -> None:
        self._delivered = {}
        self._producer.begin_transaction()
        for number in range(records):
            value = f"{kind} {self._count} in a transaction ".encode().ljust(VALUE_BYTES, b".")
            self._count += 1
            self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        place = Place(str(message.topic()), int(message.partition()), int(message.offset()))
        self._delivered[place] = bytes(message.value())
