"""Delivery reports of librdkafka, on their way to the event loop.

librdkafka may call `watched` and `unwatched` from a thread that flushes or commits. `deliver` runs on the
event loop and calls the receivers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import KafkaError

from penstock.client.errors import ClientError, DeliveryFailed, Refused, translated
from penstock.client.first_contact import FirstContact
from penstock.client.message import Delivery

__all__ = ["Deliveries", "DeliveryCallback"]

#: Called on the event loop with where the message went, or with why it did not go.
DeliveryCallback: TypeAlias = Callable[[Delivery | None, ClientError | None], None]
#: the errors of librdkafka for purged messages
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class Deliveries:
    """The reports of one producer."""

    def __init__(self, contact: FirstContact) -> None:
        self._contact = contact
        #: results to deliver on the loop: (receiver, librdkafka's error or None, its message)
        self._reports: deque[tuple[DeliveryCallback, Any, Any]] = deque()
        #: the error of purged messages if no broker has ever answered, or accepted the client
        self.unreachable: Refused | None = None
        self._failures = 0
        self._first: ClientError | None = None

    def watched(self, callback: DeliveryCallback, error: Any, message: Any) -> None:
        self._reports.append((callback, error, message))

    def unwatched(self, error: Any, message: Any) -> None:
        if error is not None:
            self._reports.append((self.note_failure, error, message))

    def note_failure(self, delivery: Delivery | None, error: ClientError | None) -> None:
        """Receives the result of a message without a callback."""
        if error is not None:
            self._failures += 1
            self._first = self._first or error

    def take_failures(self) -> DeliveryFailed | None:
        """The error for the failed messages without a callback since the last call."""
        count, first = self._failures, self._first
        self._failures, self._first = 0, None
        return None if first is None else DeliveryFailed(count, first)

    def forget_failures(self) -> None:
        """Drop the failures of messages without a callback: their transaction was aborted."""
        self.deliver()
        self.take_failures()

    def deliver(self) -> None:
        """Call the receivers of all reports."""
        reports = self._reports
        while reports:
            callback, error, message = reports.popleft()
            if error is not None:
                unreachable = self.unreachable if error.code() in _PURGED else None
                callback(None, unreachable or translated(error))
                continue
            self._contact.made = True
            offset = message.offset()
            callback(
                Delivery(
                    message.topic(),
                    message.partition(),
                    None if offset is None or offset < 0 else offset,
                    message.timestamp()[1],
                ),
                None,
            )
