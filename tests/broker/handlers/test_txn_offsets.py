"""TxnOffsetCommit and markers in one turn of the event loop. The wire is in `test_transactions`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.app.broker import Broker
from penstock.broker.handlers.txn_offsets import TxnOffsetHandlers
from penstock.broker.replica.txn_markers import Marker
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.records.record import Record, build_batch
from penstock.storage.producers import AppendOrigin
from penstock.wire.apis.offset_commit import OffsetCommitResponse
from penstock.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.metadata_records import PartitionRecord, TopicRecord
from tests.broker.coordinators.offset_commits import (
    GROUP,
    answer,
    commit,
    offsets_partition,
    run,
    running,
)

TOPIC_ID = TopicId(b"a topic".ljust(16))
PRODUCER = 7


def add_topic(broker: Broker) -> None:
    for record in (
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[9], isr=[9], leader=-1),
    ):
        broker.stages.cluster.image.apply(record, broker.stages.cluster.image.offset + 1)


def open_transaction(broker: Broker) -> None:
    add_topic(broker)
    batch = build_batch([Record(0, 0, b"", b"")], producer_id=PRODUCER, producer_epoch=0, transactional=True)
    offsets_partition(broker).append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR)


class Verifier:
    """Answers as a coordinator that has ended the transaction."""

    def __init__(self) -> None:
        self.requested = 0

    def verify(self, _membership: object, _partition: object, verified: Callable[[ErrorCode], None]) -> None:
        self.requested += 1
        verified(ErrorCode.INVALID_TXN_STATE)


def spawn(work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
    deferred: Deferred[Any] = Deferred()
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: deferred.resolve(done.result()))
    return deferred


def commit_in_transaction(broker: Broker, verifier: Verifier | None = None, version: int = 3) -> Any:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=PRODUCER,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    handlers = TxnOffsetHandlers(
        broker.stages.coordinators.groups.runtime,
        broker.stages.cluster.image,
        cast("Any", verifier),
        lambda: 0,
    )
    context = SimpleNamespace(version=version, spawn=spawn)
    return handlers.txn_offset_commit(cast("Any", context), request)


async def code_of(promised: Any) -> ErrorCode:
    return ErrorCode((await answer(promised)).topics[0].partitions[0].error_code)


def test_offsets_behind_the_marker_open_no_transaction() -> None:
    """No marker would end it, and stable fetches of the group would wait for ever."""

    async def test() -> None:
        async with running() as broker:
            open_transaction(broker)
            ended: list[ErrorCode] = []
            others = commit(broker, 1)
            within = commit_in_transaction(broker)
            assert await code_of(within) is ErrorCode.NONE
            broker.stages.coordinators.groups.write_marker(0, Marker(PRODUCER, 0, True, 0, 1), ended.append)
            # It waits for the append of the marker, and is verified as any commit behind a marker.
            verifier = Verifier()
            late = commit_in_transaction(broker, verifier)
            assert await code_of(late) is ErrorCode.INVALID_TXN_STATE
            assert verifier.requested == 1
            assert isinstance(await answer(others), OffsetCommitResponse)
            assert ended == [ErrorCode.NONE]
            assert not offsets_partition(broker).log.producers.ongoing

    run(test)


def test_a_busy_coordinator_gets_one_request() -> None:
    """It has waited for the markers of the transaction before."""

    class Busy(Verifier):
        def verify(self, _: object, __: object, verified: Callable[[ErrorCode], None]) -> None:
            self.requested += 1
            verified(ErrorCode.CONCURRENT_TRANSACTIONS)

    async def test() -> None:
        async with running() as broker:
            add_topic(broker)
            busy = Busy()
            promised = commit_in_transaction(broker, busy, version=5)
            assert await code_of(promised) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert busy.requested == 1

    run(test)


def test_commits_of_one_transaction_in_one_turn() -> None:
    async def test() -> None:
        async with running() as broker:
            open_transaction(broker)
            promised = [commit_in_transaction(broker) for _ in range(2)]
            assert [await code_of(each) for each in promised] == [ErrorCode.NONE] * 2

    run(test)
