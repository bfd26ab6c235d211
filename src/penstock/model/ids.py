"""Identifiers. A topic id is its 16 raw bytes: the form of the wire, and the fastest to hash."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)

NO_TOPIC_ID = TopicId(bytes(16))
#: Ids that are reserved by the protocol; never assigned to a topic.
METADATA_TOPIC_ID = TopicId(bytes(15) + b"\x01")
RESERVED_TOPIC_IDS = frozenset({NO_TOPIC_ID, METADATA_TOPIC_ID})

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
#: audit events of all brokers
AUDIT_TOPIC = "__audit"
#: the topics that hold the state of coordinators
COORDINATOR_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
INTERNAL_TOPICS = COORDINATOR_TOPICS | {AUDIT_TOPIC}

#: read-only configs of every topic: milliseconds since 1970
TOPIC_CREATED = "penstock.topic.created.ms"
TOPIC_CHANGED = "penstock.topic.changed.ms"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def format_topic_id(topic_id: bytes) -> str:
    """The 22 characters that Kafka's tools show for an id."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_topic_id(text: str) -> TopicId:
    """The inverse of `format_topic_id`; raises ValueError on anything else."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"{text!r} is not a topic id") from e
    # The decoder skips characters that are no base64, and bits behind the last byte.
    if len(raw) != 16 or format_topic_id(raw) != text:
        raise ValueError(f"{text!r} is not a topic id")
    return TopicId(raw)
