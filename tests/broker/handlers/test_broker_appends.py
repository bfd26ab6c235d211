"""Batches that brokers append: audit events, dead letters, delayed messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.model.errors import ErrorCode
from penstock.model.ids import AUDIT_TOPIC, TopicId
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch
from penstock.storage.log import Appended, AppendOrigin, Log
from penstock.storage.rules import Rules
from tests.broker.requests import (
    Topic,
    batch_of,
    produce_request,
)
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import NOW_MS, idempotent, open_log


@pytest.mark.parametrize(
    ("is_allowed", "name", "code"),
    [
        (False, AUDIT_TOPIC, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (True, "another", ErrorCode.INVALID_REQUEST),
        (True, AUDIT_TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_nodes_send_events_and_only_to_the_audit_topic(
    is_allowed: bool, name: str, code: ErrorCode
) -> None:
    topics = {name: SimpleNamespace(id=b"i" * 16, name=name) for name in (AUDIT_TOPIC, "another")}
    image: Any = SimpleNamespace(topics=topics, topics_by_id={})
    access: Any = SimpleNamespace(allows_on_cluster=lambda context, operation: is_allowed)
    workers: Any = None
    appends = BrokerAppends(
        image,
        lambda topic, index: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        access,
        lambda topic: topic == AUDIT_TOPIC,
        workers,
    )
    request = produce_request(Topic(name, TopicId(bytes(16))), batch_of([b"x"]), version=7)
    context: Any = None
    response = asyncio.run(appends.produce(context, request))
    assert response.responses[0].partition_responses[0].error_code == code


def appends_to(log: Log) -> BrokerAppends:
    """To the only replica of a partition."""

    def append(batches: memoryview, origin: AppendOrigin, checked_by: Rules | None = None) -> Appended:
        return log.append(batches, 0, origin, checked_by)

    partition: Any = SimpleNamespace(log=log, append=append, leadership=None, acks_wait=False)
    image: Any = None
    return BrokerAppends(image, lambda topic, index: partition, None, lambda topic: True, InlineWorkers())


def append(log: Log, batch: memoryview) -> ErrorCode:
    return asyncio.run(appends_to(log).append("orders", 0, bytes(batch)))


def test_a_batch_that_is_in_the_log_is_not_refused() -> None:
    """The sender has to know: it would write the messages again."""
    log = open_log()
    assert append(log, idempotent(0, value=b"x" * 500)) == ErrorCode.NONE
    log.reconfigure(replace(log.config, max_message_bytes=100))
    assert append(log, idempotent(0, value=b"x" * 500)) == ErrorCode.NONE
    assert append(log, idempotent(1, value=b"x" * 500)) == ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, idempotent(0, value=b"x" * 500, producer_id=8)) == ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 1


def test_a_compressed_batch_is_checked_and_appended() -> None:
    log = open_log()
    value = b"".join(n.to_bytes(4, "big") for n in range(20_000))
    assert append(log, idempotent(0, value=value, codec=Codec.GZIP)) == ErrorCode.NONE
    assert log.end_offset == 1


def test_a_compressed_batch_that_is_in_the_log_is_not_refused() -> None:
    """The check in a worker thread refuses it: a compacted topic takes no records without a key."""
    log = open_log()
    value = b"".join(n.to_bytes(4, "big") for n in range(20_000))

    def sent(producer_id: int) -> memoryview:
        records = [Record(0, NOW_MS, None, value)]
        fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        return memoryview(bytearray(build_batch(records, codec=Codec.GZIP, **fields)))

    assert append(log, sent(7)) == ErrorCode.NONE
    log.reconfigure(replace(log.config, cleanup_policy=frozenset({"compact"})))
    assert append(log, sent(7)) == ErrorCode.NONE
    assert append(log, sent(8)) == ErrorCode.INVALID_RECORD
    assert log.end_offset == 1
