"""Producer, Consumer, Admin and Queue: a small async API for any broker that speaks Kafka.

`queues`, `links` and `two_phase` have connections of their own, the others use librdkafka. The event loop's
thread owns every object: librdkafka's threads pass their results to it in batches. Durations are seconds,
timestamps are aware `datetime`s.

Imports: librdkafka, `model`, `registry` and `security`; `queues` also `net`, `wire`, `records` and `ports`,
`links` also `net` and `wire`, `two_phase` also `twophase` and `reading`. An import contract keeps the broker
out.
Used by: applications, through `penstock.Producer`, `Consumer`, `Admin` and `Queue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ClientError,
    DeliveryFailed,
    HandlerFailed,
    LinkFailed,
    LockLost,
    MisusedClient,
    NotReachable,
    ProducerFenced,
    QueueFull,
    Refused,
    SerializationError,
    TransactionAborted,
    TransactionFailed,
)
from penstock.client.message import Delivery, Message, Record
from penstock.client.partitioners import Partitioner, range_partitioner, round_robin
from penstock.client.producer import Producer
from penstock.client.retrying import RetryPolicy
from penstock.client.serializers import BYTES, JSON, MSGPACK, STRING, Serializer, avro, json_of, protobuf
from penstock.client.transactions import Transaction
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.queues.message import Acknowledgement, QueueMessage
    from penstock.client.queues.queue import Queue
    from penstock.client.registry import Registry
    from penstock.client.two_phase import TwoPhase

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "STRING",
    "Acknowledgement",
    "Admin",
    "AuthenticationFailed",
    "ClientClosed",
    "ClientError",
    "Consumer",
    "Delivery",
    "DeliveryFailed",
    "HandlerFailed",
    "LinkFailed",
    "LockLost",
    "Message",
    "MisusedClient",
    "NotReachable",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "Queue",
    "QueueFull",
    "QueueMessage",
    "Record",
    "Refused",
    "Registry",
    "RetryPolicy",
    "SerializationError",
    "Serializer",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionFailed",
    "TwoPhase",
    "avro",
    "json_of",
    "protobuf",
    "range_partitioner",
    "round_robin",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: the wire codec takes longer to import than all other clients.
    if name == "Queue":
        from penstock.client.queues.queue import Queue

        return Queue
    if name == "Registry":
        from penstock.client.registry import Registry

        return Registry
    if name == "TwoPhase":
        from penstock.client.two_phase import TwoPhase

        return TwoPhase
    if name in ("Acknowledgement", "QueueMessage"):
        from penstock.client.queues import message

        return getattr(message, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
