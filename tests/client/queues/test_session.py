"""Share sessions without sockets: the requests that they make, and what responses do to messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.errors import LockLost, MisusedClient
from penstock.client.queues.fetches import Fetched, FetchLimits
from penstock.client.queues.message import Decoders, LockState, QueueMessage, TopicIdPartition
from penstock.client.queues.session import ShareSession
from penstock.client.serializers import BYTES
from penstock.model.errors import ErrorCode
from penstock.records.record import Record, build_batch
from penstock.wire.apis import share_acknowledge as ack
from penstock.wire.apis import share_fetch as fetch

ORDERS = b"o" * 16
A, B = TopicIdPartition(ORDERS, 0), TopicIdPartition(ORDERS, 1)


class World:
    """A session with a clock, and a broker with prepared answers."""

    def __init__(self, *partitions: TopicIdPartition) -> None:
        self.woken = 0
        self.now_s = 100.0
        self.session = ShareSession(
            "workers",
            "me",
            FetchLimits(),
            Decoders(BYTES.decode, BYTES.decode),
            {ORDERS: "orders"}.get,
            self._wake,
        )
        self.session.assign(partitions or (A,))

    def _wake(self) -> None:
        self.woken += 1

    def send_fetch(self) -> fetch.ShareFetchRequest:
        return self.session.fetch_request(10, 500, self.now_s)

    def fetched(self, *partitions: fetch.PartitionData, **fields: Any) -> Fetched:
        topics = [fetch.ShareFetchableTopicResponse(topic_id=ORDERS, partitions=list(partitions))]
        response = fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=30_000, responses=topics if partitions else [], **fields
        )
        return self.session.fetched(response, self.now_s)

    def acquire(self, first: int, last: int, count: int = 1) -> list[QueueMessage]:
        self.send_fetch()
        return self.fetched(records_of(first, last, count)).messages

    def is_urgent(self) -> bool:
        return self.session.needs_acknowledge

    def acknowledge(self) -> ack.ShareAcknowledgeRequest:
        return self.session.acknowledge_request(self.now_s)

    def acknowledged(self, code: int = 0, partition: int = 0, **fields: Any) -> Fetched:
        data = ack.PartitionData(partition_index=partition, error_code=code)
        topics = [ack.ShareAcknowledgeTopicResponse(topic_id=ORDERS, partitions=[data])]
        response = ack.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=30_000, responses=topics, **fields
        )
        return self.session.acknowledged(response, self.now_s)


def records_of(first: int, last: int, count: int = 1, partition: int = 0) -> fetch.PartitionData:
    records = [Record(offset, 0, None, b"v") for offset in range(first, last + 1)]
    return fetch.PartitionData(
        partition_index=partition,
        records=build_batch(records, base_offset=first),
        acquired_records=[fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)],
    )


def outcomes(request: Any) -> dict[int, list[tuple[int, int, list[int]]]]:
    return {
        p.partition_index: [
            (b.first_offset, b.last_offset, b.acknowledge_types) for b in p.acknowledgement_batches
        ]
        for topic in request.topics
        for p in topic.partitions
    }


def test_partitions_are_named_once() -> None:
    world = World(A, B)
    first = world.send_fetch()
    assert (first.share_session_epoch, outcomes(first)) == (0, {0: [], 1: []})
    assert (first.max_records, first.batch_size, first.share_acquire_mode) == (10, 10, 1)
    world.fetched()
    second = world.send_fetch()
    assert (second.share_session_epoch, second.topics, second.forgotten_topics_data) == (1, [], [])
    world.fetched()
    world.session.assign([B])
    third = world.send_fetch()
    assert third.share_session_epoch == 2
    assert [(t.topic_id, t.partitions) for t in third.forgotten_topics_data] == [(ORDERS, [0])]


def test_large_requests_acquire_whole_batches() -> None:
    session = World().session
    assert session.fetch_request(499, 0, 0.0).share_acquire_mode == 1
    session.end("")
    assert session.fetch_request(500, 0, 0.0).share_acquire_mode == 0


def test_outcomes_go_with_the_next_fetch() -> None:
    world = World()
    messages = world.acquire(0, 4)
    assert world.session.held_count == 5
    for message in messages[:3]:
        message.accept()
    messages[3].release()
    messages[4].reject()
    assert world.session.held_count == 0
    assert outcomes(world.send_fetch()) == {0: [(0, 2, [1]), (3, 3, [2]), (4, 4, [3])]}
    world.fetched(fetch.PartitionData(partition_index=0))
    assert {message.state for message in messages} == {LockState.CONFIRMED}
    assert outcomes(world.send_fetch()) == {}


def test_gaps_are_acknowledged_by_the_session() -> None:
    world = World()
    data = records_of(0, 0)
    data.acquired_records[0].last_offset = 0
    data.acquired_records.append(fetch.AcquiredRecords(first_offset=1, last_offset=2, delivery_count=1))
    world.send_fetch()
    world.fetched(data)
    assert world.session.has_pending
    assert outcomes(world.send_fetch()) == {0: [(1, 2, [2])]}


def test_a_message_has_one_outcome() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    message.accept()
    with pytest.raises(MisusedClient, match="one outcome"):
        message.reject()


def test_an_outcome_of_a_partition_that_moved_away_does_not_wait_for_a_fetch() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    world.session.assign([B])
    message.accept()
    assert world.session.needs_acknowledge
    assert outcomes(world.send_fetch()) == {1: []}
    world.fetched()
    assert outcomes(world.acknowledge()) == {0: [(0, 0, [1])]}
    world.acknowledged()
    assert message.state is LockState.CONFIRMED


def test_awaiting_an_acknowledgement_is_urgent() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    answer = message.accept()
    assert not world.is_urgent()

    async def wait() -> None:
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert world.is_urgent()
        world.acknowledge()
        assert not world.is_urgent()
        world.acknowledged()
        await waiting
        await answer

    asyncio.run(wait())


def test_a_refused_outcome_is_a_lost_lock() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    answer = message.accept()
    world.acknowledge()
    world.acknowledged(ErrorCode.INVALID_RECORD_STATE)
    assert message.state is LockState.LOST

    async def wait() -> None:
        with pytest.raises(LockLost, match="INVALID_RECORD_STATE"):
            await answer
        with pytest.raises(LockLost, match="INVALID_RECORD_STATE"):
            await message.accept()

    asyncio.run(wait())


def test_an_outcome_that_was_not_persisted_is_sent_again_while_the_lock_lasts() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    message.accept()
    world.acknowledge()
    world.acknowledged(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not message.is_held
    assert outcomes(world.acknowledge()) == {0: [(0, 0, [1])]}
    world.now_s += 31
    world.acknowledged(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert message.state is LockState.LOST


def test_an_outcome_that_the_response_does_not_mention_is_lost() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    message.accept()
    world.send_fetch()
    world.fetched()
    assert message.state is LockState.LOST


def test_locks_are_renewed_in_their_second_half() -> None:
    world = World()
    early, late = world.acquire(0, 1)
    world.now_s += 14
    world.session.renew_due(world.now_s, 600)
    assert not world.session.has_renewals
    world.now_s += 2
    early.accept()
    world.session.renew_due(world.now_s, 600)
    request = world.acknowledge()
    assert request.is_renew_ack
    assert outcomes(request) == {0: [(0, 0, [1]), (1, 1, [4])]}
    world.acknowledged()
    assert (early.state, late.state) == (LockState.CONFIRMED, LockState.HELD)
    assert late.deadline_s == world.now_s + 30
    world.session.renew_due(world.now_s + 20, 30)
    assert not world.session.has_renewals, "it was acquired too long ago"


def test_an_outcome_replaces_a_renewal_that_was_not_sent() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    renewal = message.renew()
    assert message.renew() is renewal
    message.accept()
    assert renewal.is_done
    request = world.acknowledge()
    assert (request.is_renew_ack, outcomes(request)) == (False, {0: [(0, 0, [1])]})


def test_a_refused_renewal_leaves_the_message_to_its_handler() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    renewal = message.renew()
    world.acknowledge()
    world.acknowledged(ErrorCode.INVALID_RECORD_STATE)
    assert message.is_held
    with pytest.raises(LockLost):
        asyncio.run(_await(renewal))
    world.session.forbid_renewals()
    with pytest.raises(MisusedClient, match="does not renew"):
        message.renew()


async def _await(renewal: Any) -> None:
    await renewal


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_session_that_the_broker_has_lost_starts_again(code: ErrorCode) -> None:
    world = World()
    one, two = world.acquire(0, 1)
    one.accept()
    world.send_fetch()
    result = world.fetched(error_code=code)
    assert (result.failure, result.must_wait) == (None, True)
    assert one.state is two.state is LockState.LOST
    again = world.send_fetch()
    assert (again.share_session_epoch, outcomes(again)) == (0, {0: []})


def test_errors_of_partitions() -> None:
    world = World(A, B)
    world.send_fetch()
    moved = fetch.PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    result = world.fetched(moved, records_of(0, 0, partition=1))
    assert (len(result.messages), result.is_stale, result.must_wait, result.failure) == (1, True, True, None)
    world.send_fetch()
    forbidden = fetch.PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    failure = world.fetched(forbidden).failure
    assert failure is not None
    assert "orders-0" in str(failure)


def test_a_session_limit_is_waited_for() -> None:
    world = World()
    world.send_fetch()
    result = world.fetched(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    assert (result.must_wait, result.failure, world.session.is_open) == (True, None, False)


def test_the_last_request_has_the_outcomes() -> None:
    world = World()
    assert world.session.close_request(0.0) is None
    one, two = world.acquire(0, 1)
    one.accept()
    request = world.session.close_request(world.now_s)
    assert request is not None
    assert (request.share_session_epoch, outcomes(request)) == (-1, {0: [(0, 0, [1])]})
    world.acknowledged()
    world.session.end("closed")
    assert (one.state, two.state) == (LockState.CONFIRMED, LockState.LOST)


def test_a_message_that_expired_before_its_delivery_is_dropped() -> None:
    world = World()
    (message,) = world.acquire(0, 0)
    message.expire()
    assert (message.state, world.session.held_count) == (LockState.LOST, 0)
