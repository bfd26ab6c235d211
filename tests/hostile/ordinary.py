"""Values for the fields of requests that are valid and name what exists, by the names of the fields.

A field without an entry gets its default: a new API or field is covered without a change here, and gets
further with one.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.model.errors import ErrorCode
from penstock.wire.schema import Field
from tests.broker.requests import batch_of, record

__all__ = ["GROUP", "TOPICS", "ordinary_value"]

GROUP: Final = "group"
#: the topics that exist, with their numbers of partitions
TOPICS: Final = {f"known-{number}": 3 for number in range(5)}
_BATCH: Final = batch_of([record(b"value", key=b"key")])
#: values of fields by name; those of one kind apply to that kind only
_VALUES: Final[dict[str, Any]] = {
    "group_id": GROUP,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": 0,
    "protocol_type": "consumer",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 10_000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "acks": 1,
    "replica_id": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 4,
    "producer_id": 1,
    "current_leader_epoch": -1,
    "leader_epoch": -1,
    "session_epoch": -1,
    "share_session_epoch": 0,
    "timestamp": -1,
    "resource_type": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "resource_type_filter": 2,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:name",
    "host": "*",
    "error_code": ErrorCode.NONE,
    "broker_id": 99,
    "voter_id": 99,
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt-salt-salt-salt",
    "salted_password": b"p" * 32,
    "response_partition_limit": 2000,
    "max_version_level": 1,
    "feature": "name",
    "entity_type": "user",
    "key_type": 0,
    "coordinator_epoch": 0,
    "max_records": 100,
    "batch_size": 100,
    "partition_max_bytes": 1 << 20,
    "records": _BATCH,
}
#: fields that hold the name of a topic, in any message that has them as text
_TOPIC_NAMES: Final = frozenset(
    {"topic", "topic_name", "topics", "topic_names", "subscribed_topic_names", "source_topics"}
)


def ordinary_value(field: Field, owner: str) -> Any:
    """The value of a simple field of the structure called `owner`."""
    if field.name == "mechanism" and field.kind == "string":
        return "PLAIN"
    if field.name == "acks" or field.name in _VALUES:
        value = _VALUES[field.name]
        if (field.kind == "string") == isinstance(value, str) or field.kind in ("bytes", "records"):
            return value
    if field.kind == "string":
        return name_of(field, owner)
    if field.default is None or field.kind in ("array", "struct"):
        return {"bytes": b"", "uuid": bytes(16), "records": _BATCH}.get(field.kind)
    return field.default


def name_of(field: Field, owner: str) -> str:
    """The text of a field that names something."""
    if field.name in _TOPIC_NAMES or (field.name == "name" and "Topic" in owner):
        return next(iter(TOPICS))
    return field.default or "name"
