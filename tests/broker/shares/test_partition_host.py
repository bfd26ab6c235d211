"""A share partition on its leader, with a share coordinator whose answers the test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.base.awake_clock import AwakeClock
from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ApiError, ErrorCode
from penstock.shares.acknowledgement import Acknowledgement, acknowledge
from penstock.shares.acquisition import AcquireRequest, FetchedBatch, acquire
from penstock.shares.partition import ShareLimits
from penstock.shares.sessions import ShareSession, TopicIdPartition
from penstock.shares.shard import ShareStateKey
from tests.broker.nodes import cluster
from tests.broker.nodes import run as run_cluster
from tests.broker.shares.fakes import Persister, leading

TOPIC, LIMITS = bytes(16), ShareLimits()
KEY = ShareStateKey("group", TOPIC, 0)


_STILL = SimpleNamespace(monotonic=lambda: 1.0)


class Leader:
    """A broker that leads a partition of ten records, and a session of one member."""

    def __init__(self, clock: Any = _STILL) -> None:
        self.persister = Persister()
        settings = SimpleNamespace(limits=LIMITS, is_committed=False)
        config = SimpleNamespace(of=lambda group: settings)
        parts: Any = (config, clock, None, self.persister, None)
        self.shares = SharePartitions(*parts)
        self._partition = leading(SimpleNamespace(log_start_offset=0))

    async def acquired(self) -> SharePartitionHost:
        """The share partition, with all records acquired by one member."""
        host = self.shares.find(KEY, self._partition)
        await self.persister.idle()
        assert host.share is not None
        acquire(host.share, AcquireRequest("m", 10, 10), 0, [FetchedBatch(0, 9)], LIMITS, 1000)
        return host

    def open(self) -> ShareSession:
        return self.shares.sessions.open("group", "m", object(), [TopicIdPartition(TOPIC, 0)], 10)

    def close(self, session: ShareSession) -> None:
        self.shares.sessions.close(*session.key)
        self.shares.end_session(session)


def accept(host: SharePartitionHost, first: int, last: int) -> None:
    assert host.share is not None
    transition = acknowledge(host.share, "m", [Acknowledgement(first, last, [1])], LIMITS, 1000)
    assert transition is not None
    host.persist(transition, lambda _: None)


def scenario(steps: Callable[[Leader, SharePartitionHost, ShareSession], None]) -> None:
    async def run() -> None:
        leader = Leader()
        session = leader.open()
        steps(leader, await leader.acquired(), session)

    asyncio.run(run())


def accept_all_at_once(leader: Leader, host: SharePartitionHost) -> None:
    """Two transitions: the second one does not know that the first one will be committed."""
    accept(host, 0, 4)
    accept(host, 5, 9)
    assert leader.persister.starts == [5, 0]
    leader.persister.answer()
    leader.persister.answer()
    assert cast("Any", host.share).start_offset == 10


@pytest.mark.parametrize("is_awake", [True, False])
def test_locks_do_not_expire_while_the_broker_does_not_run(is_awake: bool) -> None:
    """The acknowledgements that have arrived meanwhile are read after the timers have run."""
    now_s = [1.0]
    system: Any = SimpleNamespace(monotonic=lambda: now_s[0], now_ms=lambda: 0)

    async def run() -> None:
        host = await Leader(AwakeClock(system, lambda stalled_s: None) if is_awake else system).acquired()
        now_s[0] += LIMITS.lock_ms / 1000 + 10
        host._locks_due()
        assert cast("Any", host.share).available == (0 if is_awake else 10)
        host.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    asyncio.run(run())


def test_a_broker_measures_locks_by_the_clock_that_leaves_stalls_out() -> None:
    async def run() -> None:
        async with cluster(1) as nodes:
            broker = nodes[1]
            assert (
                broker.stages.coordinators.shares.partitions.env.clock
                is broker.stages.cluster.node.awake_clock
            )

    run_cluster(run())


def test_the_start_offset_is_persisted_with_the_end_of_the_last_session() -> None:
    def steps(leader: Leader, host: SharePartitionHost, session: ShareSession) -> None:
        accept_all_at_once(leader, host)
        leader.close(session)
        assert leader.persister.starts == [10]
        assert list(leader.shares.hosts()) == [host], "it stays until the write is answered"
        leader.persister.answer()
        assert not list(leader.shares.hosts())
        assert not leader.persister.writes

    scenario(steps)


def test_the_start_offset_is_persisted_after_writes_that_outlast_the_session() -> None:
    def steps(leader: Leader, host: SharePartitionHost, session: ShareSession) -> None:
        accept(host, 0, 4)
        accept(host, 5, 9)
        leader.close(session)
        leader.persister.answer()
        leader.persister.answer()
        assert leader.persister.starts == [10]
        leader.persister.answer()
        assert not list(leader.shares.hosts())

    scenario(steps)


def test_a_start_offset_that_cannot_be_persisted_does_not_keep_the_host() -> None:
    def steps(leader: Leader, host: SharePartitionHost, session: ShareSession) -> None:
        accept_all_at_once(leader, host)
        leader.close(session)
        leader.persister.answer(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert not leader.persister.writes, "one attempt"
        assert not list(leader.shares.hosts())

    scenario(steps)


def test_a_start_offset_that_is_persisted_is_not_written_again() -> None:
    def steps(leader: Leader, host: SharePartitionHost, session: ShareSession) -> None:
        accept(host, 0, 9)
        leader.persister.answer()
        leader.close(session)
        assert not leader.persister.writes
        assert not list(leader.shares.hosts())

    scenario(steps)


def test_an_empty_fetch_persists_the_start_offset() -> None:
    def steps(leader: Leader, host: SharePartitionHost, _: ShareSession) -> None:
        accept_all_at_once(leader, host)
        assert host.persist_start()
        assert not host.persist_start(), "one write at a time"
        leader.persister.answer()
        assert not host.persist_start()

    scenario(steps)
