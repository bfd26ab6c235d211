"""The loop of the bridge through failures on both sides, with a source and a target in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed
from penstock.bridge.message import Bridged
from penstock.bridge.window import Counts
from tests.bridge.fakes import FakeSource, FakeTarget, lost, message

QUICK = CopySettings(exit_at_end=True, backoff_s=0.0, poll_s=0.001, drain_s=0.05, in_flight=4)


def ids(*numbers: int) -> list[str]:
    return [f"S:{number}" for number in numbers]


def copy(
    source: FakeSource, target: FakeTarget, settings: CopySettings = QUICK, report: list[str] | None = None
) -> Counts:
    said = [] if report is None else report

    async def run() -> Counts:
        async with asyncio.timeout(60):
            return await Copier(source, target, settings, report=said.append).run()

    return asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds; the test's own limit of time ends it otherwise."""
    while True:
        await asyncio.sleep(0)
        if condition():
            return


def once(error: WriteFailed, *numbers: int) -> Callable[[Bridged], WriteFailed | None]:
    """Let the first write of these messages fail."""
    left = set(ids(*numbers))

    def answer(each: Bridged) -> WriteFailed | None:
        if each.id in left:
            left.remove(each.id)
            return error
        return None

    return answer


def test_all_messages_are_written_and_acknowledged_in_order() -> None:
    source, target = FakeSource(map(message, range(10))), FakeTarget()
    counts = copy(source, target)
    assert target.stored == ids(*range(10)) == source.acknowledged
    assert counts == Counts(received=10, written=10, acknowledged=10)
    assert source.closed == 1


def test_a_write_that_may_succeed_later_is_begun_again_and_not_given_back() -> None:
    source = FakeSource(map(message, range(4)))
    target = FakeTarget(once(WriteFailed("timed out", retriable=True), 1, 2))
    report: list[str] = []
    counts = copy(source, target, report=report)
    assert target.stored == ids(0, 3, 1, 2)
    assert sorted(map(str, source.acknowledged)) == ids(*range(4))
    assert (counts.retried, counts.released, source.released) == (2, 0, [])
    assert report == ["target: timed out; writing 2 messages again"]


def test_a_refused_message_stops_the_bridge_and_is_not_acknowledged() -> None:
    source = FakeSource(map(message, range(3)))
    target = FakeTarget(lambda each: WriteFailed("too large", retriable=False) if each.id == "S:1" else None)
    with pytest.raises(BridgeError, match="target refuses message S:1 of source: too large"):
        copy(source, target)
    assert "S:1" not in source.acknowledged
    assert source.released == ids(1)


def test_refused_messages_can_be_left_to_the_source() -> None:
    source = FakeSource(map(message, range(3)))
    target = FakeTarget(once(WriteFailed("too large", retriable=False), 1))
    settings = CopySettings(exit_at_end=True, backoff_s=0.0, poll_s=0.001, refused="release")
    counts = copy(source, target, settings)
    assert source.released == ids(1)
    assert (counts.received, counts.released, counts.acknowledged) == (4, 1, 3)


def test_a_lost_acknowledgement_does_not_write_twice() -> None:
    source, target = FakeSource(map(message, range(3))), FakeTarget()
    source.fails = {"acknowledge": lost()}
    report: list[str] = []
    counts = copy(source, target, report=report)
    assert target.stored == ids(0, 1, 2)
    assert sorted(map(str, source.acknowledged)) == ids(0, 1, 2)
    assert (counts.received, counts.lost, counts.skipped, counts.written) == (6, 3, 3, 3)
    assert report[0] == "source: the server is gone; connecting again"
    assert source.opened == 2


def test_ids_of_publishers_are_written_twice_after_a_lost_acknowledgement() -> None:
    source = FakeSource(message(number, unique=False) for number in range(3))
    target = FakeTarget()
    source.fails = {"acknowledge": lost()}
    counts = copy(source, target)
    assert target.stored == ids(0, 1, 2, 0, 1, 2)
    assert counts.written == 6


def test_a_source_that_is_gone_is_opened_until_it_answers() -> None:
    source, target = FakeSource(map(message, range(3))), FakeTarget()
    source.fails = {"receive": lost()}
    opening = source.open

    async def failing_twice() -> None:
        if source.closed in (1, 2):
            raise ConnectionLost("refused")
        await opening()

    source.open = failing_twice  # type: ignore[method-assign]
    assert copy(source, target).written == 3
    assert source.closed == 4


def test_the_first_connection_is_not_retried() -> None:
    source = FakeSource([])
    source.fails = {"open": lost("no server")}
    with pytest.raises(ConnectionLost, match="no server"):
        copy(source, FakeTarget())
    assert source.closed == 1


def test_messages_of_the_targets_system_are_acknowledged_and_not_copied() -> None:
    source = FakeSource([message(0), message(1, origin="kafka"), message(2)])
    target = FakeTarget()
    counts = copy(source, target)
    assert target.stored == ids(0, 2)
    assert (counts.skipped, counts.acknowledged) == (1, 3)


def test_a_count_ends_the_bridge_without_taking_more() -> None:
    source, target = FakeSource(map(message, range(10))), FakeTarget()
    settings = CopySettings(count=3, poll_s=0.001)
    counts = copy(source, target, settings)
    assert target.stored == ids(0, 1, 2)
    assert counts.received == 3


def test_no_more_messages_than_allowed_are_in_flight() -> None:
    source, target = FakeSource(map(message, range(10))), FakeTarget()
    target.held = []
    seen: list[int] = []

    async def run() -> None:
        copier = Copier(source, target, QUICK)
        running = asyncio.create_task(copier.run())
        while copier.counts.acknowledged < 10:
            await asyncio.sleep(0)
            assert target.held is not None
            seen.append(len(target.held))
            if len(target.held) == 4 or copier.counts.received == 10:
                held, target.held = target.held, []
                for _, done in held:
                    done(None)
        await running

    asyncio.run(asyncio.wait_for(run(), 60))
    assert max(seen) == 4


def test_a_stopped_bridge_waits_for_its_writes_and_gives_the_others_back() -> None:
    source, target = FakeSource(map(message, range(3))), FakeTarget()
    target.held = []
    stopped = False

    async def run() -> Counts:
        nonlocal stopped
        copier = Copier(source, target, QUICK, is_stopped=lambda: stopped)
        running = asyncio.create_task(copier.run())
        await until(lambda: copier.counts.received == 3)
        stopped = True
        assert target.held is not None
        target.held[0][1](None)
        return await running

    counts = asyncio.run(asyncio.wait_for(run(), 60))
    assert (source.acknowledged, source.released) == (ids(0), ids(1, 2))
    assert (counts.acknowledged, counts.released) == (1, 2)


UNREACHABLE = WriteFailed("no server answers", retriable=True)


def test_one_message_of_a_pass_tries_to_reach_the_target() -> None:
    source, target = FakeSource(map(message, range(100))), FakeTarget()
    target.unreachable = UNREACHABLE
    settings = CopySettings(in_flight=100, backoff_s=0.0, poll_s=0.001, exit_at_end=True)
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            target.unreachable = None

    async def run() -> Counts:
        async with asyncio.timeout(60):
            return await Copier(source, target, settings, report=report).run()

    counts = asyncio.run(run())
    assert (target.attempts, target.stored) == (3, ids(*range(100)))
    assert (counts.acknowledged, counts.released) == (100, 0)
    assert set(lines) == {"target: no server answers; writing 100 messages again"}


def test_a_stop_does_not_wait_for_a_target_that_is_down() -> None:
    source, target = FakeSource(map(message, range(50))), FakeTarget()
    target.unreachable = UNREACHABLE
    lines: list[str] = []
    # Each pause and the time to drain are longer than the test's own limit of time.
    settings = CopySettings(in_flight=50, backoff_s=60.0, backoff_max_s=60.0, poll_s=0.001, drain_s=60.0)

    async def run() -> Counts:
        async with asyncio.timeout(60):
            copier = Copier(source, target, settings, is_stopped=lambda: bool(lines), report=lines.append)
            return await copier.run()

    counts = asyncio.run(run())
    assert (target.attempts, source.acknowledged, source.released) == (1, [], ids(*range(50)))
    assert (counts.released, counts.retried) == (50, 0)


def test_a_stop_does_not_wait_for_a_source_that_is_down() -> None:
    source, target = FakeSource([]), FakeTarget()
    source.fails = {"receive": lost()}
    settings = CopySettings(backoff_s=60.0, poll_s=0.001)

    async def run() -> None:
        async with asyncio.timeout(60):
            # The source is closed before the pause.
            await Copier(source, target, settings, is_stopped=lambda: source.closed > 0).run()

    asyncio.run(run())
    assert source.closed == 2


def test_locks_of_messages_in_flight_are_extended() -> None:
    source, target = FakeSource(map(message, range(2))), FakeTarget()
    source.lock_s = 0.003
    target.held = []

    async def run() -> None:
        running = asyncio.create_task(Copier(source, target, QUICK).run())
        await until(lambda: len(source.extended) >= 2)
        assert target.held is not None
        for _, done in target.held:
            done(None)
        target.held = None
        await running

    asyncio.run(asyncio.wait_for(run(), 60))
    assert source.extended[:2] == ids(0, 1)
    assert source.acknowledged == ids(0, 1)


class Faults:
    """Decides which calls fail, from a list that ends."""

    def __init__(self, plan: list[str]) -> None:
        self._plan = list(plan)

    def next(self) -> str:
        return self._plan.pop() if self._plan else ""


class FlakySource(FakeSource):
    """Loses its connection now and then, also after a call has taken effect. Checks each acknowledgement."""

    def __init__(self, faults: Faults, stored: list[str | None], count: int, unique: bool) -> None:
        super().__init__(message(number, unique=unique) for number in range(count))
        self._faults = faults
        self._stored = stored

    async def open(self) -> None:
        if self.opened and self._faults.next() == "before":
            raise lost()
        await super().open()

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        if self._faults.next() == "before":
            raise lost()
        return await super().receive(limit, wait_s)

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        assert all(each.id in self._stored for each in messages), "acknowledged before it was stored"
        fault = self._faults.next()
        if fault == "before":
            raise lost()
        await super().acknowledge(messages)
        if fault == "after":
            raise lost()


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["", "", "before", "after"]), max_size=40), st.booleans())
def test_no_failure_loses_messages(plan: list[str], unique: bool) -> None:
    faults = Faults(plan)
    timed_out = WriteFailed("timed out", retriable=True)

    def answer(each: Bridged) -> WriteFailed | None:
        fault = faults.next()
        if fault == "after":  # stored, and the response is lost
            target.stored.append(each.id)
        return timed_out if fault else None

    target = FakeTarget(answer)
    source = FlakySource(faults, target.stored, 7, unique)
    counts = copy(source, target)
    assert set(target.stored) == set(source.acknowledged) == set(ids(*range(7)))
    ended = counts.acknowledged + counts.merged + counts.released + counts.lost
    assert counts.received == ended
    assert asyncio.run(source.is_drained())
