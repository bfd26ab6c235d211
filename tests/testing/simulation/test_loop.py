"""The loop: virtual time, asyncio's promises kept per process, and what a seed decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.testing.simulation.loop import SimLoop, Stuck
from penstock.testing.simulation.process import Process


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(0)
    yield loop
    loop.close()


async def _forever() -> None:
    await asyncio.Event().wait()


def test_an_hour_passes_at_once(loop: SimLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run(main(), limit_s=4000) == pytest.approx(3600, abs=0.001)


def test_a_run_that_takes_too_long_is_stuck(loop: SimLoop) -> None:
    with pytest.raises(Stuck, match="not done after 5 s"):
        loop.run(_forever(), limit_s=5)


def test_callbacks_of_a_process_keep_their_order(loop: SimLoop) -> None:
    seen: list[int] = []
    process = loop.new_process("one", "host")
    for number in range(20):
        loop.call_soon(seen.append, number, context=process.context)
    loop.run(asyncio.sleep(1), limit_s=2)
    assert seen == list(range(20))


def _interleaving(seed: int) -> str:
    loop = SimLoop(seed)
    seen: list[str] = []
    for name in "ab":
        process = loop.new_process(name, name)
        for _ in range(10):
            loop.call_soon(seen.append, name, context=process.context)
    loop.run(asyncio.sleep(1), limit_s=2)
    loop.close()
    return "".join(seen)


def test_the_seed_decides_whose_turn_it_is() -> None:
    orders = [_interleaving(seed) for seed in range(5)]
    assert orders == [_interleaving(seed) for seed in range(5)]
    assert len(set(orders)) > 1


def _ticks(loop: SimLoop, process: Process) -> list[float]:
    """When a process got to do something, every second of its life."""
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(round(loop.time()))

    process.spawn(loop, tick())
    return seen


def test_a_paused_process_runs_due_timers_later(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")
    seen = _ticks(loop, process)

    async def main() -> None:
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5)
        process.resume()
        await asyncio.sleep(2)

    loop.run(main(), limit_s=20)
    assert seen == [1, 2, 8, 9]


def test_nothing_of_a_killed_process_runs_again(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(2)
            seen.append("done")
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        process.spawn(loop, work())
        loop.call_later(3, seen.append, "timer", context=process.context)
        await asyncio.sleep(1)
        process.kill()
        loop.call_soon(seen.append, "too late", context=process.context)
        await asyncio.sleep(5)

    loop.run(main(), limit_s=20)
    assert seen == []


def test_a_workers_job_takes_time_and_its_result_comes_back(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")
    loop.set_work_time("host", lambda: 0.5)
    done_at: list[float] = []

    def job() -> str:
        done_at.append(loop.time())
        return "result"

    async def work() -> tuple[str, float]:
        return await loop.run_in_executor(None, job), loop.time()

    async def main() -> tuple[str, float]:
        result: tuple[str, float] = await process.spawn(loop, work())
        return result

    result, heard_at = loop.run(main(), limit_s=5)
    assert result == "result"
    assert 0 <= done_at[0] <= heard_at
    assert heard_at == pytest.approx(0.5, abs=0.001)


def test_a_workers_error_is_raised_where_it_is_awaited(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")

    async def work() -> None:
        await loop.run_in_executor(None, int, "no number")

    async def main() -> None:
        await process.spawn(loop, work())

    with pytest.raises(ValueError, match="no number"):
        loop.run(main(), limit_s=5)


def test_a_job_of_a_killed_process_is_not_done(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")
    loop.set_work_time("host", lambda: 10.0)
    done: list[int] = []

    async def work() -> None:
        await loop.run_in_executor(None, done.append, 1)

    async def main() -> None:
        process.spawn(loop, work())
        await asyncio.sleep(0)
        process.kill()
        await asyncio.sleep(20)

    loop.run(main(), limit_s=30)
    assert done == []


def test_an_uncaught_error_is_remembered(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")
    loop.call_soon(int, "no number", context=process.context)
    loop.run(asyncio.sleep(1), limit_s=2)
    assert [str(context["exception"]) for context in loop.unhandled] == [
        "invalid literal for int() with base 10: 'no number'"
    ]


def test_a_loop_that_yields_forever_does_not_stop_the_clock(loop: SimLoop) -> None:
    process = loop.new_process("one", "host")

    async def spin() -> None:
        for _ in range(100_000):
            await asyncio.sleep(0)

    async def main() -> None:
        process.spawn(loop, spin())
        await asyncio.sleep(0.01)

    loop.run(main(), limit_s=1)
    assert loop.trace.steps >= 9_000
