"""Large requests share the event loop: one slice between two polls, and clients take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import count, pairwise

import pytest

from penstock.model.errors import ProtocolError
from penstock.net.turns import COMPUTED_AT_ONCE, SHARE_S, SLICE_S, Turns


class Peer:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.closed = False


def _ticking(step_s: float) -> Turns:
    """Turns with a clock on which each look takes `step_s`."""
    ticks = count()
    return Turns(lambda: next(ticks) * step_s)


def _steps(number: int, done: list[object], name: object = None) -> Generator[None, None, str]:
    for _ in range(number):
        done.append(name)
        yield
    return "result"


def test_a_long_computation_leaves_the_loop_after_each_slice() -> None:
    async def main() -> None:
        done: list[object] = []
        polls: list[int] = []

        def poll() -> None:
            polls.append(len(done))
            if len(done) < 100:
                loop.call_soon(poll)

        loop = asyncio.get_running_loop()
        loop.call_soon(poll)
        assert await _ticking(SLICE_S / 10).run(_steps(100, done), Peer("a")) == "result"
        between = [after - before for before, after in pairwise(polls)]
        assert max(between) <= 10
        assert len(done) == 100

    asyncio.run(main())


def test_at_most_one_slice_runs_between_two_polls() -> None:
    """Twelve clients with large requests do not get twelve slices per iteration."""

    async def main() -> None:
        turns, done = _ticking(SLICE_S / 10), [object()]
        polls: list[int] = []
        tasks = [
            asyncio.ensure_future(turns.run(_steps(30, done, i), Peer(f"client-{i}"))) for i in range(12)
        ]
        while not all(task.done() for task in tasks):
            polls.append(len(done))
            await asyncio.sleep(0)
        between = [after - before for before, after in pairwise(polls)]
        assert max(between) <= 10
        # Each client has its first slice before another has its second.
        first = {name: done.index(name) for name in range(12)}
        assert max(first.values()) <= 12 * 10

    asyncio.run(main())


def test_a_client_with_many_large_requests_delays_its_own() -> None:
    async def main() -> None:
        turns, done = _ticking(SLICE_S / 10), [object()]
        greedy, modest = Peer("greedy"), Peer("modest")
        many = [asyncio.ensure_future(turns.run(_steps(50, done, "greedy"), greedy)) for _ in range(20)]
        await asyncio.sleep(0)
        await turns.run(_steps(50, done, "modest"), modest)
        # A slice of it for about each slice of the other, of 1000 steps.
        assert done.count("greedy") <= 120
        await asyncio.gather(*many)
        assert len(turns) == 0

    asyncio.run(main())


def test_a_client_has_few_computations_in_progress() -> None:
    """Each holds what it has built. One that goes on with such a result does not wait for others."""

    async def main() -> None:
        turns, done = _ticking(SLICE_S / 10), [object()]
        peer = Peer("a")
        many = [asyncio.ensure_future(turns.run(_steps(50, done, i), peer)) for i in range(30)]
        others = [asyncio.ensure_future(turns.run(_steps(50, done, "b"), Peer("b")))]
        most = 0
        while not all(task.done() for task in many):
            begun = {name for name in done if isinstance(name, int)}
            most = max(most, sum(not task.done() for i, task in enumerate(many) if i in begun))
            if len(begun) == 10:
                goes_on = turns.run(_steps(5, done, "goes on"), peer, begins=False)
                others.append(asyncio.ensure_future(goes_on))
                await others[-1]
                assert not many[20].done()
            await asyncio.sleep(0)
        assert most == COMPUTED_AT_ONCE
        assert others[0].done()
        assert len(others) > 1

    asyncio.run(main())


def test_a_computation_that_ends_while_it_waits_takes_no_place() -> None:
    async def main() -> None:
        turns, done = _ticking(SLICE_S / 10), [object()]
        peer = Peer("a")
        tasks = [asyncio.ensure_future(turns.run(_steps(50, done, i), peer)) for i in range(12)]
        await asyncio.sleep(0)
        for task in tasks[:9]:
            task.cancel()
        assert await asyncio.wait_for(asyncio.gather(*tasks[9:]), 10) == ["result"] * 3
        assert not turns._computing._used

    asyncio.run(main())


def test_a_closed_connection_ends_its_computation() -> None:
    async def main() -> None:
        done: list[object] = []
        peer = Peer("a")
        turns = _ticking(SLICE_S / 10)
        task = asyncio.ensure_future(turns.run(_steps(1000, done), peer))
        for _ in range(5):
            await asyncio.sleep(0)
        assert done
        peer.closed = True
        with pytest.raises(ProtocolError, match="closed"):
            await task
        assert len(done) < 1000

    asyncio.run(main())


def test_a_cancelled_computation_leaves_the_queue_to_others() -> None:
    async def main() -> None:
        done: list[object] = []
        turns = _ticking(SLICE_S / 10)
        first = asyncio.ensure_future(turns.run(_steps(1000, done), Peer("a")))
        await asyncio.sleep(0)
        first.cancel()
        assert await turns.run(_steps(5, done), Peer("b")) == "result"

    asyncio.run(main())


def test_a_short_computation_is_done_at_once() -> None:
    async def main() -> None:
        done: list[object] = []
        assert _ticking(1e-6).run_first(_steps(100, done)) == ("result",)
        steps = _steps(100, done)
        assert _ticking(SLICE_S).run_first(steps) is None
        assert await _ticking(1e-6).run(steps, Peer("a")) == "result"

    asyncio.run(main())


def test_the_share_of_an_iteration_is_given_back_with_the_next_poll() -> None:
    async def main() -> None:
        turns = _ticking(1e-6)
        found = []
        for _ in range(2):
            turns.use(SHARE_S / 2)
            found.append(turns.is_used_up)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [*found, turns.is_used_up] == [False, True, False]

    asyncio.run(main())


def test_pipelined_requests_share_an_iteration() -> None:
    async def main() -> None:
        turns = _ticking(SHARE_S / 8)
        for _ in range(3):
            # At first the second half: that an iteration has begun is not known before.
            assert [turns.is_share_over() for _ in range(6)] == [False] * 4 + [True] * 2
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # The first half may go on over several iterations.
            assert [turns.is_share_over() for _ in range(3)] == [False] * 3
            await asyncio.sleep(0)

    asyncio.run(main())


def test_pipelined_requests_of_many_short_iterations_schedule_nothing() -> None:
    """A callback in each iteration would cost as much as a request."""

    async def main() -> None:
        turns = _ticking(SHARE_S / 100)
        scheduled: list[int] = []
        for iteration in range(200):
            assert not turns.is_share_over()
            if turns._is_scheduled:
                scheduled.append(iteration)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert 2 <= len(scheduled) <= 5

    asyncio.run(main())


def test_connections_with_more_than_a_small_frame_wait_once_the_share_is_used_up() -> None:
    async def main() -> None:
        turns = _ticking(1e-6)
        found = []
        for _ in range(3):
            found.append(turns.frame_bytes_max)
            turns.use(1.5 * SHARE_S)
        any_size, small, none = [*found[:2], turns.frame_bytes_max]
        assert any_size > 1 << 31 > 1000 > small > none == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns.frame_bytes_max == any_size

    asyncio.run(main())
