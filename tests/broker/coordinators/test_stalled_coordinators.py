"""Coordinators that did not run for a while: the time does not count against members and transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.handlers.transaction_requests import find, init
from tests.broker.raw import RawClient
from tests.groups.shard_driver import subscription

_TIMEOUT_MS = 2000
_STALL_S = 3.5


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
    }
    with broker(config=config) as thread:
        yield thread


def stall(running: BrokerThread) -> None:
    """Hold up the broker; returns when it runs again, before it has heard of any client."""
    running._loop.call_soon_threadsafe(time.sleep, _STALL_S)
    turns = threading.Event()
    running._loop.call_soon_threadsafe(
        lambda: running._loop.call_later(0.05, turns.set)  # timers that are due have run by then
    )
    assert turns.wait(60)


def test_a_member_is_not_expelled_because_its_coordinator_stalled(running: BrokerThread) -> None:
    with RawClient(running.bootstrap) as client:
        client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["group"]))
        joining = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=_TIMEOUT_MS,
            rebalance_timeout_ms=_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
        )
        joined = client.call(JOIN_GROUP, 3, joining)
        member = joined.member_id
        assignment = SyncGroupRequestAssignment(member_id=member, assignment=b"")
        sync = SyncGroupRequest(group_id="group", generation_id=1, member_id=member, assignments=[assignment])
        assert client.call(SYNC_GROUP, 3, sync).error_code == ErrorCode.NONE
        stall(running)
        beat = HeartbeatRequest(group_id="group", generation_id=1, member_id=member)
        assert client.call(HEARTBEAT, 3, beat).error_code == ErrorCode.NONE


def test_a_transaction_is_not_aborted_because_its_coordinator_stalled(running: BrokerThread) -> None:
    with RawClient(running.bootstrap) as client:
        find(client, "transactional", 1)
        error, transaction = init(client, "transactional", transaction_timeout_ms=_TIMEOUT_MS)
        assert error == "NONE"
        transaction.add_offsets("group")
        stall(running)
        assert transaction.end(True, 3).error_code == ErrorCode.NONE
