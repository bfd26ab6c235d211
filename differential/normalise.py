"""Reduces responses to the fields that must agree between two brokers.

A message becomes a dictionary by field name, with labels instead of values that the broker chose. Left out or
reduced to presence: throttle times, texts of errors, the cluster's id, times of the broker's clock. Lists of
structures whose order means nothing to clients are sorted.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from differential.model import START_MS
from differential.translation import Translation
from penstock.model.errors import CorruptMessage
from penstock.records.batch import BatchHeader
from penstock.records.record import iter_batches, iter_records
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.schema import Struct

__all__ = ["CLOSED", "NO_ERROR_TEXT", "SILENT", "TEXT", "Closed", "Plain", "normalise"]

Plain: TypeAlias = Any
#: the reactions of a broker without a response
CLOSED: Final = "closed the connection"
SILENT: Final = "did not answer"
#: all texts of errors, and Kafka's text for the error code 0
TEXT: Final = "text"
NO_ERROR_TEXT: Final = "NONE"

_IGNORED: Final = frozenset({"throttle_time_ms", "cluster_id", "documentation"})
#: compared for presence only
_TEXTS: Final = frozenset({"error_message", "batch_index_error_message", "reason", "status_detail"})
#: lists of tasks, which any of several equal members may get: compared by their number
_TASKS: Final = frozenset({"active_tasks", "standby_tasks", "warmup_tasks"})
#: records bring times that are long past; a later one is of the broker's clock
_TIMES: Final = frozenset({"log_append_time_ms", "timestamp", "last_timestamp", "transaction_start_time_ms"})
_CLOCK_FROM: Final = START_MS + 1_000_000_000
#: lists of texts whose order means nothing
_SETS: Final = frozenset({"subscribed_topic_names"})


class Closed(str):
    """`CLOSED` after a malformed request. Equal to any other, so that only reactions are compared."""

    def __new__(cls, cause: str) -> Closed:
        made = super().__new__(cls, CLOSED)
        made.cause = cause
        return made

    #: why the request cannot be decoded
    cause: str


def normalise(message: Struct, translation: Translation) -> Plain:
    """The comparable form of a response."""
    if isinstance(message, FetchResponse):
        message = _by_topic(message)
    plain = {}
    for item in type(message).fields:
        if item.name in _IGNORED:
            continue
        value = getattr(message, item.name)
        if item.kind == "records":
            plain[item.name] = _records(value, translation)
        elif isinstance(value, list):
            plain[item.name] = _list(item.name, value, translation)
        else:
            plain[item.name] = _value(item.name, value, translation)
    if isinstance(message, PartitionData) and not plain["records"]:
        # Kafka lists transactions of records that did not fit into the response; clients skip the list.
        plain["aborted_transactions"] = []
    return plain


def _by_topic(response: FetchResponse) -> FetchResponse:
    """One entry per topic: Kafka lists partitions with errors in an entry of their own."""
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for topic in response.responses:
        one = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        topics.setdefault((topic.topic, topic.topic_id), one).partitions += topic.partitions
    return FetchResponse(
        error_code=response.error_code,
        session_id=response.session_id,
        responses=list(topics.values()),
        node_endpoints=response.node_endpoints,
    )


def _list(name: str, values: list[Any], translation: Translation) -> Plain:
    if name in _TASKS:
        return sum(len(ids.partitions) for ids in values)
    if name == "partitions_by_user_endpoint":
        return len(values)
    plain = [_value(name, value, translation) for value in values]
    unordered = name in _SETS or (values and isinstance(values[0], Struct))
    return sorted(plain, key=repr) if unordered else plain


def _value(name: str, value: Any, translation: Translation) -> Plain:
    if isinstance(value, Struct):
        return normalise(value, translation)
    if name in _TEXTS:
        return (NO_ERROR_TEXT if value == NO_ERROR_TEXT else TEXT) if value else None
    if name == "port":
        return "own port" if value == translation.port else value
    if name in _TIMES and value > _CLOCK_FROM:
        return "now"
    if isinstance(value, str):
        return translation.plain_text(value)
    if isinstance(value, bytes) and len(value) == 16 and any(value):
        return translation.label(value, "some id")
    if name in ("producer_id", "session_id") and value > 0:
        return translation.label(value, f"some {name}")
    return value


def _records(value: Any, translation: Translation) -> Plain:
    """Batches by header and records; a batch that is cut off, or cannot be read, by its size."""
    if value is None:
        return None
    data = bytes(value)
    plain: list[Plain] = []
    end = 0
    try:
        for position, header in iter_batches(data):
            end = position + header.size
            plain.append(_batch(header, data[position:end], translation))
    except CorruptMessage:
        plain.append(f"{len(data) - end} bytes")
    return plain


def _batch(header: BatchHeader, batch: bytes, translation: Translation) -> Plain:
    is_now = header.is_log_append_time or header.is_control
    try:
        records = [
            (r.offset, "now" if is_now else r.timestamp, r.key, r.value, r.headers)
            for r in iter_records(batch)
        ]
    except CorruptMessage:
        records = []
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "attributes": header.attributes,
        "base_timestamp": "now" if header.is_control else header.base_timestamp,
        "max_timestamp": "now" if is_now else header.max_timestamp,
        "producer_id": translation.label(header.producer_id, header.producer_id),
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "record_count": header.record_count,
        "records": records,
    }
