"""Batches that brokers append: audit events, dead letters, delayed messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.base.awaiting import awaited
from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.model.errors import ErrorCode, NotLeaderOrFollower
from penstock.model.ids import AUDIT_TOPIC, TopicId
from penstock.net.deferred import Deferred
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, iter_records
from penstock.storage.log import Appended, AppendOrigin, Log
from penstock.storage.rules import Rules
from penstock.wire.apis.produce import ProduceRequest, ProduceResponse
from tests.broker.requests import (
    Topic,
    batch_of,
    produce_request,
)
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import NOW_MS, idempotent, open_log, stored


def produced(
    appends: BrokerAppends, request: ProduceRequest, then: Callable[[], None] = lambda: None
) -> ProduceResponse:
    """The response to a request on the internal listener; `then` is called before its task begins."""

    async def run() -> ProduceResponse:
        tasks = Tasks()
        context: Any = SimpleNamespace(spawn=tasks.spawn)
        response = appends.produce(context, request)
        then()
        return await awaited(response)

    return asyncio.run(run())


class Tasks:
    """As the dispatcher runs handlers."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        response: Deferred[Any] = Deferred()

        async def run() -> None:
            response.resolve(await work)

        self.task = asyncio.get_running_loop().create_task(run())
        return response


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
    response = produced(appends, request)
    assert response.responses[0].partition_responses[0].error_code == code


def appends_to(log: Log, *, leading: bool = True) -> BrokerAppends:
    """To the only replica of a partition, or to a follower."""

    def append(batches: memoryview, origin: AppendOrigin, checked_by: Rules | None = None) -> Appended:
        if not leading:
            raise NotLeaderOrFollower
        return log.append(batches, 0, origin, checked_by)

    partition: Any = SimpleNamespace(
        log=log,
        append=append,
        is_mirror=False,
        leadership=None,
        leading=leading,
        sync=SimpleNamespace(acks_wait=False),
    )
    topics = {"orders": SimpleNamespace(name="orders", id=TopicId(bytes(16)))}
    image: Any = SimpleNamespace(topics=topics, topics_by_id={})
    return BrokerAppends(image, lambda topic, index: partition, None, lambda topic: True, InlineWorkers())


def append(log: Log, batch: memoryview, *, leading: bool = True) -> ErrorCode:
    return asyncio.run(appends_to(log, leading=leading).append("orders", 0, bytes(batch)))


def test_a_batch_outlives_the_receive_buffer() -> None:
    """The next request, of any connection, takes its place before the task of the first one begins."""
    log, other = open_log(), idempotent(0, value=b"other", producer_id=8)
    buffer = bytearray(idempotent(0, value=b"first"))
    request = produce_request(Topic("orders", TopicId(bytes(16))), bytes(buffer), version=7)
    request.topic_data[0].partition_data[0].records = memoryview(buffer)

    def receive() -> None:
        buffer[:] = other

    response = produced(appends_to(log), request, receive)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    data = stored(log)
    assert [record.value for record in iter_records(data)] == [b"first"]


def test_a_batch_that_is_in_the_log_is_not_refused() -> None:
    """The sender has to know: it would write the messages again."""
    log = open_log()
    assert append(log, idempotent(0, value=b"x" * 500)) == ErrorCode.NONE
    log.reconfigure(replace(log.config, max_message_bytes=100))
    assert append(log, idempotent(0, value=b"x" * 500)) == ErrorCode.NONE
    assert append(log, idempotent(1, value=b"x" * 500)) == ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, idempotent(0, value=b"x" * 500, producer_id=8)) == ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 1


def test_a_follower_does_not_confirm_a_batch_in_its_log() -> None:
    """The new leader may lack the batch, and the follower truncates it: the sender would believe it moved."""
    log = open_log()
    assert append(log, idempotent(0)) == ErrorCode.NONE
    assert append(log, idempotent(0), leading=False) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append(log, idempotent(0)) == ErrorCode.NONE
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
