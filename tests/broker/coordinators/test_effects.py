"""Effects of a shard run once the records that caused them are committed, and never otherwise."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.coordinators import shard_host
from penstock.broker.coordinators.effects import UncommittedEffects
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, StorageError
from penstock.net.deferred import Deferred
from tests.broker.coordinators.counters import Counters, CounterShard, Signal, counting
from tests.broker.coordinators.offset_commits import answer, run


@pytest.fixture
def never_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush ever starts, so `penstock.flush=group` commits nothing until a test does."""
    monkeypatch.setattr(Flusher, "_start", lambda _: None)


def test_effects_are_taken_in_order_once_they_are_committed() -> None:
    effects = UncommittedEffects()
    effects.add(1, ["a", "b"])
    effects.add(3, ["c"])
    effects.add(3, ["d"])
    assert effects.take_committed(0) == []
    assert effects.take_committed(2) == ["a", "b"]
    assert effects
    assert effects.take_committed(3) == ["c", "d"]
    assert not effects


@pytest.mark.usefixtures("never_flushed")
def test_an_effect_runs_when_its_record_is_committed() -> None:
    async def test() -> None:
        async with counting(penstock_flush="group") as counters:
            response = counters.add("c", 5)
            await asyncio.sleep(0)
            assert counters.partition.log.end_offset == 1, "the record is appended"
            assert not counters.effects and not response.done
            counters.commit()
            assert counters.effects == [Signal("c", 5)]
            assert (await answer(response)).value == 5

    run(test)


def test_effects_run_in_the_order_of_the_decisions() -> None:
    async def test() -> None:
        async with counting() as counters:
            responses = [counters.add(name) for name in ("a", "b", "a")]
            assert [(await answer(each)).value for each in responses] == [1, 1, 2]
            assert counters.effects == [Signal("a", 1), Signal("b", 1), Signal("a", 2)]

    run(test)


def test_no_effect_runs_if_the_append_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    async def test() -> None:
        async with counting() as counters:
            await answer(counters.add("c"))
            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                assert (await answer(counters.add("c"))).error_code == ErrorCode.NOT_COORDINATOR
            assert (await answer(counters.read("c"))).value == 1
            assert counters.effects == [Signal("c", 1)]

    run(test)


def test_no_effect_runs_if_the_flush_fails() -> None:
    async def test() -> None:
        async with counting(penstock_flush="group") as counters:
            response = counters.add("c")
            counters.partition.health.sync_failed(OSError(5, "input/output error"), "a disk failed")
            assert (await answer(response)).error_code == ErrorCode.NOT_COORDINATOR
            assert not counters.effects

    run(test)


@pytest.mark.usefixtures("never_flushed")
@pytest.mark.parametrize("by_metadata", [True, False])
def test_no_effect_runs_after_leadership_is_lost(by_metadata: bool) -> None:
    """The broker learns of the new leader from the metadata, or the partition steps down first."""

    async def test() -> None:
        async with counting(penstock_flush="group") as counters:
            response = counters.add("c")
            await asyncio.sleep(0)
            if by_metadata:
                counters.runtime.resigned(0)
            else:
                counters.partition.retire()
            assert (await answer(response)).error_code == ErrorCode.NOT_COORDINATOR
            counters.partition.log.high_watermark = 1
            await asyncio.sleep(0)
            assert not counters.effects

    run(test)


def test_no_effect_runs_if_leadership_is_lost_before_the_append() -> None:
    async def test() -> None:
        async with counting() as counters:
            response = counters.add("c")
            counters.runtime.resigned(0)
            assert (await answer(response)).error_code == ErrorCode.NOT_COORDINATOR
            await asyncio.sleep(0)
            assert not counters.effects and counters.partition.log.end_offset == 0

    run(test)


def test_an_effect_without_a_record_runs_unless_leadership_is_lost() -> None:
    async def test() -> None:
        async with counting() as counters:
            await answer(counters.add("c"))
            counters.runtime.notify(0, lambda shard: shard.signal("c"))
            await asyncio.sleep(0)
            assert counters.effects == [Signal("c", 1)] * 2
            counters.runtime.notify(0, lambda shard: shard.signal("c"))
            counters.partition.retire()
            await asyncio.sleep(0)
            assert counters.effects == [Signal("c", 1)] * 2

    run(test)


@pytest.mark.usefixtures("never_flushed")
def test_an_effect_waits_longer_than_the_reply() -> None:
    """The reply times out. The record may be committed later, and then the effect has to run."""

    async def test() -> None:
        async with counting(penstock_flush="group", commit_timeout_s=0.01) as counters:
            response = await answer(counters.add("c"))
            assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert not counters.effects
            counters.commit()
            assert counters.effects == [Signal("c", 1)]

    run(test)


@pytest.mark.usefixtures("never_flushed")
def test_effects_of_a_load_wait_for_the_replayed_records() -> None:
    """A new coordinator replays records that are not committed yet. Their effects wait for the commit."""

    async def test() -> None:
        async with counting(penstock_flush="group", signal_on_load=True) as counters:
            counters.add("c", 3)
            await asyncio.sleep(0)
            counters.runtime.resigned(0)
            counters.runtime.elected(0)
            read = counters.read("c")
            for _ in range(50):
                await asyncio.sleep(0.001)  # nothing may be answered meanwhile
            assert isinstance(read, Deferred) and not read.done and not counters.effects
            counters.commit()
            assert (await answer(read)).value == 3
            assert counters.effects == [Signal("c", 3)]

    run(test)


def test_the_outcome_of_an_effect_goes_back_to_the_shard() -> None:
    def add_again(counters: Counters, index: int, signal: Signal) -> None:
        def add(shard: CounterShard) -> None:
            shard.add(f"after {signal.name}", signal.value)

        if signal.name == "c":
            counters.runtime.notify(index, add)

    async def test() -> None:
        async with counting() as counters:
            counters.on_effect = lambda index, signal: add_again(counters, index, signal)
            await answer(counters.add("c", 2))
            assert (await answer(counters.read("after c"))).value == 2
            assert counters.effects == [Signal("c", 2), Signal("after c", 2)]

    run(test)


def test_an_effect_that_raises_does_not_keep_replies_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(shard_host.log, "error", lambda event, **_: logged.append(event))

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    async def test() -> None:
        async with counting() as counters:
            counters.on_effect = fail
            assert (await answer(counters.add("c"))).value == 1
            assert logged == ["coordinator_effect_failed"]

    run(test)


@pytest.mark.usefixtures("never_flushed")
def test_a_failed_append_drops_the_effects_of_earlier_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host loads the log again. The new shard decides which effects are still due."""

    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    async def test() -> None:
        async with counting(penstock_flush="group") as counters:
            responses = [counters.add("appended")]
            await asyncio.sleep(0)
            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                responses.append(counters.add("refused"))
                for response in responses:
                    assert (await answer(response)).error_code == ErrorCode.NOT_COORDINATOR
            read = counters.read("appended")
            counters.commit()
            assert (await answer(read)).value == 1
            counters.add("next")
            await asyncio.sleep(0)
            counters.commit()
            assert counters.effects == [Signal("next", 1)]

    run(test)
