"""Producer, Consumer and Admin: a small async API over librdkafka, for any broker that speaks Kafka.

The event loop's thread owns every object: librdkafka's threads pass their results to it in batches. Durations
are seconds, timestamps are aware `datetime`s.

Imports: `model`, and librdkafka. An import contract keeps the broker out.
Used by: applications, through `penstock.Producer`, `penstock.Consumer` and `penstock.Admin`.
"""

from penstock.client.admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.errors import (
    ClientClosed,
    ClientError,
    DeliveryFailed,
    HandlerFailed,
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

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "STRING",
    "Admin",
    "ClientClosed",
    "ClientError",
    "Consumer",
    "Delivery",
    "DeliveryFailed",
    "HandlerFailed",
    "Message",
    "MisusedClient",
    "NotReachable",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "QueueFull",
    "Record",
    "Refused",
    "RetryPolicy",
    "SerializationError",
    "Serializer",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionFailed",
    "avro",
    "json_of",
    "protobuf",
    "range_partitioner",
    "round_robin",
]
