"""The host of a shard over real logs: the order of append, commit and reply, and failed appends."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

from penstock.broker.coordinators import shard_host
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.partition import Partition
from penstock.coordination.timers import TimerKey
from penstock.groups.shard import GroupShard
from penstock.model.errors import ApiError, ErrorCode, NotLeaderOrFollower, StorageError
from penstock.net.deferred import Deferred
from penstock.wire.apis.offset_commit import (
    OffsetCommitResponse,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchResponseGroup,
)
from tests.broker.coordinators.offset_commits import (
    GROUP,
    answer,
    batches,
    commit,
    crowd,
    error_response,
    fetch,
    fetched,
    make_durable,
    offsets_partition,
    run,
    running,
)


def test_records_of_one_turn_of_the_loop_are_one_batch() -> None:
    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            promised = [commit(broker, offset) for offset in (1, 2, 3)]
            assert batches(broker) == []
            for each in promised:
                assert isinstance(await answer(each), OffsetCommitResponse)
            assert batches(broker) == [3]
            assert await fetched(broker) == 3

    run(test)


def test_the_first_request_of_a_turn_of_the_loop_is_answered_at_once() -> None:
    """Its record is committed as soon as it is appended. The records of the others are one batch."""

    async def test() -> None:
        async with running() as broker:
            for turn in (1, 2):
                first, *others = [commit(broker, offset) for offset in (1, 2, 3)]
                assert isinstance(first, OffsetCommitResponse)
                assert all(isinstance(each, Deferred) for each in others)
                for each in others:
                    assert isinstance(await answer(each), OffsetCommitResponse)
                assert batches(broker) == [1, 2] * turn
            assert await fetched(broker) == 3

    run(test)


def test_a_read_of_committed_state_is_answered_at_once() -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            assert not isinstance(fetch(broker), Deferred)

    run(test)


def test_no_reply_is_sent_before_the_records_are_flushed() -> None:
    """With penstock.flush=group, neither the commit nor a later read that depends on it is answered."""

    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            partition = offsets_partition(broker)
            promised, read = commit(broker, 5), fetch(broker)
            sent: list[tuple[str, int]] = []
            promised.then(lambda _: sent.append(("commit", partition.log.high_watermark)))
            read.then(lambda _: sent.append(("read", partition.log.high_watermark)))
            await asyncio.sleep(0)
            assert partition.log.end_offset == 1 and not sent
            assert await fetched(broker) == 5
            assert sent == [("commit", 1), ("read", 1)]

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("no space left"), ErrorCode.NOT_COORDINATOR),
        (NotLeaderOrFollower(), ErrorCode.NOT_COORDINATOR),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_is_undone(monkeypatch: pytest.MonkeyPatch, error: ApiError, code: ErrorCode) -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))

            def refuse(*_: object) -> None:
                raise error

            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                promised = [commit(broker, 2), fetch(broker)]
                assert [(await answer(each)).error_code for each in promised] == [code, code]
            assert await fetched(broker) == 1
            await answer(commit(broker, 3))
            assert await fetched(broker) == 3

    run(test)


def test_a_failed_append_of_the_first_request_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered with the error at once, and the next request waits for the new shard."""

    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            await asyncio.sleep(0)
            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                response = commit(broker, 2)
            assert response.error_code == ErrorCode.NOT_COORDINATOR
            assert await fetched(broker) == 1
            await answer(commit(broker, 3))
            assert await fetched(broker) == 3

    run(test)


def test_retries_of_loading_do_not_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 1000 failed appends they would exceed the limit of the interpreter, which is lower here."""
    monkeypatch.setattr(shard_host, "_RELOAD_LIMIT_S", 0.0)
    limit = sys.getrecursionlimit()

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            with monkeypatch.context() as full:
                full.setattr(shard_host, "append_records", refuse)
                sys.setrecursionlimit(len(inspect.stack(0)) + 150)
                for _ in range(200):
                    await answer(commit(broker, 2))
                    async with asyncio.timeout(60):
                        while getattr(fetch(broker), "error_code", 0):  # noqa: ASYNC110
                            await asyncio.sleep(0)
            await answer(commit(broker, 3))
            assert await fetched(broker) == 3

    try:
        run(test)
    finally:
        sys.setrecursionlimit(limit)


def test_a_failed_flush_ends_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            await answer(commit(broker, 1))
            health = offsets_partition(broker).health
            promised = commit(broker, 2)
            health.sync_failed(OSError(5, "input/output error"), "a disk died")
            assert (await answer(promised)).error_code == ErrorCode.NOT_COORDINATOR
            assert (await answer(commit(broker, 3))).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_coordinator_with_a_failed_disk_does_not_answer_from_memory() -> None:
    """Another broker may lead already. A broker whose metadata log is on that disk does not learn of it."""

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            assert await fetched(broker) == 1
            health = offsets_partition(broker).health
            health.sync_failed(OSError(5, "input/output error"), "a disk died")
            assert fetch(broker).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_retired_partition_fails_all_requests() -> None:
    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            promised = commit(broker, 1)
            await asyncio.sleep(0)
            offsets_partition(broker).retire()
            assert (await answer(promised)).error_code == ErrorCode.NOT_COORDINATOR
            assert (await answer(fetch(broker))).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_request_waits_for_the_load_after_a_restart(tmp_path: Path) -> None:
    """Not even the first request fails: some clients do not handle that error well."""

    async def test() -> None:
        async with running(log_dirs=str(tmp_path)) as broker:
            for offset in range(50):
                await answer(commit(broker, offset, "x" * 1000))
        async with running(log_dirs=str(tmp_path)) as broker:
            assert await fetched(broker) == 49

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (StorageError("gone"), ErrorCode.NOT_COORDINATOR)],
)
def test_requests_fail_if_the_load_takes_long_or_fails(
    monkeypatch: pytest.MonkeyPatch, error: StorageError | None, code: ErrorCode
) -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            loads = asyncio.Event()

            async def load(*_: object) -> None:
                await loads.wait()
                if error is not None:
                    raise error

            monkeypatch.setattr(Loader, "load", load)
            monkeypatch.setattr(shard_host, "_LOAD_TIMEOUT_S", 0.01 if error is None else 60)
            broker.stages.coordinators.groups.runtime.resigned(0)
            broker.stages.coordinators.groups.runtime.elected(0)
            waits = fetch(broker)
            assert isinstance(waits, Deferred) and not waits.done
            if error is not None:
                loads.set()
            assert (await answer(waits)).error_code == code
            assert fetch(broker).error_code == code

    run(test)


def test_repeated_append_failures_are_retried_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk, a loaded shard may append at once and fail again."""

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            with monkeypatch.context() as full:
                full.setattr(shard_host, "append_records", refuse)
                assert (await answer(commit(broker, 2))).error_code == ErrorCode.NOT_COORDINATOR
                assert await fetched(broker) == 1, "after the first failure it is loaded at once"
                assert (await answer(commit(broker, 3))).error_code == ErrorCode.NOT_COORDINATOR
                assert fetch(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while getattr(fetch(broker), "error_code", ErrorCode.NONE) != ErrorCode.NONE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await fetched(broker) == 1
            assert (await answer(commit(broker, 4))).topics[0].partitions[0].error_code == ErrorCode.NONE

    run(test)


def test_a_limited_number_of_timers_expires_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a machine with a thousand members fails, their sessions expire together."""

    async def test() -> None:
        async with running() as broker:
            expired: list[TimerKey] = []
            turns: list[int] = []

            def begin(shard: GroupShard) -> None:
                for number in range(100):
                    shard.timers.schedule(("kind", str(number)), 0)

            monkeypatch.setattr(GroupShard, "timer_expired", lambda _, key: expired.append(key))
            broker.stages.coordinators.groups.runtime.notify_all(begin)
            while len(expired) < 100:
                before = len(expired)
                await asyncio.sleep(0)
                turns.append(len(expired) - before)
            assert max(turns) <= 16

    run(test)


def test_a_record_that_cannot_be_encoded_fails_its_request() -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))

            def fail() -> tuple[bytes, bytes]:
                raise OverflowError("a length that does not fit")

            def decide(shard: GroupShard, _: object) -> OffsetFetchResponseGroup:
                shard.outbox.records.append(fail)
                return OffsetFetchResponseGroup()

            promised = broker.stages.coordinators.groups.runtime.submit(GROUP, decide, error_response)
            assert (await answer(promised)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert await fetched(broker) == 1

    run(test)


def test_committed_replies_are_sent_when_the_host_is_unloaded() -> None:
    """Its record is in the log: the effect would run otherwise."""

    async def test() -> None:
        async with running() as broker:
            answered = crowd(broker, 10)
            await asyncio.sleep(0)  # they are written, and the first are answered
            assert 0 < len(answered) < 10
            broker.stages.coordinators.groups.runtime.resign_all()
            assert answered == [(number, ErrorCode.NONE) for number in range(10)]

    run(test)


@pytest.fixture
def never_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush ever starts, so `penstock.flush=group` commits nothing."""
    monkeypatch.setattr(Flusher, "_start", lambda _: None)


@pytest.mark.usefixtures("never_durable")
def test_requests_time_out_if_their_records_are_not_committed() -> None:
    """offsets.commit.timeout.ms: as in Kafka, members then look for a coordinator and retry."""

    async def test() -> None:
        async with running(penstock_flush="group", offsets_commit_timeout_ms="20") as broker:
            promised = [commit(broker, 1), fetch(broker)]
            await asyncio.sleep(0)
            assert offsets_partition(broker).log.end_offset == 1
            late = fetch(broker)
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            for each in (*promised, late):
                assert (await answer(each)).error_code == unavailable
            assert (await answer(fetch(broker))).error_code == unavailable, (
                "the record is still not committed"
            )
            make_durable(broker)
            assert await fetched(broker) == 1

    run(test)


@pytest.mark.usefixtures("never_durable")
def test_a_new_coordinator_does_not_answer_from_uncommitted_records() -> None:
    """A record that is not committed may be lost with the next leader."""

    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            commit(broker, 7)
            await asyncio.sleep(0)
            assert offsets_partition(broker).log.end_offset == 1
            broker.stages.coordinators.groups.runtime.resigned(0)
            broker.stages.coordinators.groups.runtime.elected(0)
            early = fetch(broker)
            for _ in range(100):
                await asyncio.sleep(0.001)  # nothing may be answered meanwhile
                late = fetch(broker)
                assert isinstance(late, Deferred) and not late.done and not early.done
            make_durable(broker)
            response = await answer(early)
            assert response.topics[0].partitions[0].committed_offset == 7
            assert not isinstance(fetch(broker), Deferred)

    run(test)
