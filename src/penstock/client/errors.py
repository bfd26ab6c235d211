"""The exceptions of the clients. Each message names the remedy.

PenstockError
└── ClientError
    ├── MisusedClient        an argument or a call that cannot work: change the code
    ├── ClientClosed         used after `close`: make a new one
    ├── SerializationError   a key or value does not fit its serializer
    ├── NotReachable         no broker responded in time: a retry may succeed
    ├── Refused              a broker refused the request, with an error code
    ├── AuthenticationFailed the login, a certificate or the protocol does not fit: correct the settings
    ├── QueueFull            more unsent messages than the producer keeps: wait for some
    ├── DeliveryFailed       messages of a batch, or without a callback, were not delivered
    ├── HandlerFailed        a handler failed in every attempt and there is no dead-letter topic
    ├── LinkFailed           a link or its topics are not as a call needs them: see the message
    ├── LockLost             a queue's message may be delivered again: its outcome came too late
    ├── TransactionAborted   a transaction was rolled back: run it again
    └── TransactionFailed    a transactional producer cannot continue: make a new one
        └── ProducerFenced   another producer has taken over the transactional id, or a transaction timed out
"""

from __future__ import annotations

from typing import Any

from penstock.model.errors import PenstockError

__all__ = [
    "AuthenticationFailed",
    "ClientClosed",
    "ClientError",
    "DeliveryFailed",
    "HandlerFailed",
    "LinkFailed",
    "LockLost",
    "MisusedClient",
    "NotReachable",
    "ProducerFenced",
    "QueueFull",
    "Refused",
    "SerializationError",
    "TransactionAborted",
    "TransactionFailed",
    "translated",
]


class ClientError(PenstockError):
    """Anything that a Producer, a Consumer or an Admin raises on purpose."""


class MisusedClient(ClientError):
    """The call cannot work; a retry does not help."""


class ClientClosed(ClientError):
    """The client was closed before or during the call."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"this {kind} is closed: make a new one")


class SerializationError(ClientError):
    """A key or value that its serializer cannot write or read."""


class Refused(ClientError):
    """A broker, or librdkafka on its behalf, refused; `code` is Kafka's (librdkafka's own are below -1)."""

    def __init__(self, message: str, code: int, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable


class NotReachable(Refused):
    """No broker responded in time. The request may or may not have taken effect."""


class AuthenticationFailed(Refused):
    """No broker accepts the client: its login, a certificate or `security.protocol` does not fit.

    Another attempt with the same settings fails, too.
    """


class QueueFull(ClientError):
    """The producer keeps no more unsent messages."""

    def __init__(self) -> None:
        super().__init__(
            "the producer's queue is full: use `await send(...)`, which waits, or `await flush()` first"
        )


class DeliveryFailed(ClientError):
    """Some messages of a batch, or of `send_nowait` without a callback, were not delivered."""

    def __init__(self, count: int, first: ClientError) -> None:
        super().__init__(
            f"{count} message(s) were not delivered, the first because: {first}. "
            "To get the result of each, await send() or pass a callback to send_nowait()"
        )
        self.count = count
        self.first = first


class HandlerFailed(ClientError):
    """A handler raised on every attempt; the message stays uncommitted and comes again."""

    def __init__(self, partition: object, offset: int, attempts: int, error: Exception) -> None:
        super().__init__(
            f"the handler failed {attempts} time(s) on {partition} offset {offset} "
            f"({error!r}): fix it, or pass dead_letter= to continue after such messages"
        )


class LinkFailed(ClientError):
    """A call of `Admin.links` that was not completed, although no broker refused a request."""


class LockLost(ClientError):
    """The outcome of a queue's message was not applied, or its answer was lost: it may be delivered again."""

    def __init__(self, partition: object, offset: int, reason: str) -> None:
        super().__init__(
            f"the lock of {partition} offset {offset} is lost ({reason}): it may be delivered again. "
            "If processing takes long, renew the lock or raise visibility_timeout"
        )


class TransactionAborted(ClientError):
    """A transaction was rolled back, and nothing of it is visible. The same work may succeed in a new one.

    `code` is the code of the error that was the reason.
    """

    def __init__(self, reason: object, code: int) -> None:
        super().__init__(
            f"the transaction was rolled back ({reason}): run it again, with producer.transact() for example"
        )
        self.code = code


class TransactionFailed(ClientError):
    """A fatal error of a transactional producer, which is closed by it.

    `outcome_unknown` is true if the error came while the transaction was being committed: it may be committed
    or aborted, and a new producer with the same transactional id completes it. `is_timeout` is true if no
    coordinator has answered in time.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        self.is_timeout = is_timeout


class ProducerFenced(TransactionFailed):
    """A newer producer has the same transactional id, or the coordinator has aborted a slow transaction."""


#: librdkafka's codes for "unreachable" and "no response in time": transport, timed out, message timed out,
#: all brokers down, resolve, time out in queue; and Kafka's own REQUEST_TIMED_OUT.
_UNREACHABLE = frozenset({-195, -185, -192, -187, -193, -166, 7})

_ADVICE = {
    -190: "the topic has fewer partitions: add some, or let the key choose",
    3: "create the topic first, or check its name",
    10: "send smaller messages, or raise max.message.bytes of the topic",
    16: "try again: the group's coordinator is moving",
    22: "the group has rebalanced: go on consuming, the message comes again",
    25: "the group has removed this consumer: poll more often or raise max.poll.interval.ms",
    29: "request access to the topic",
    30: "request access to the group",
    36: "choose another name, or use the existing topic",
    68: "stop the group's members first",
    69: "check the group's name",
    110: "the group has fenced this consumer: poll more often or raise max.poll.interval.ms",
    113: "the group has rebalanced: go on consuming, the message comes again",
}


def translated(error: Any) -> Refused:
    """Translate a `KafkaError`, or the `KafkaException` around one, to a ClientError."""
    error = error.args[0] if isinstance(error, Exception) else error
    code, text = int(error.code()), f"{error.name()}: {error.str()}"
    if code in _UNREACHABLE:
        return NotReachable(
            f"{text}. Check that a broker listens at the bootstrap address", code, retriable=True
        )
    advice = _ADVICE.get(code)
    return Refused(f"{text}. Advice: {advice}" if advice else text, code, retriable=bool(error.retriable()))
