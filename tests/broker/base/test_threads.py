"""Threads that take jobs from one queue and give the results to the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.broker.base.threads import Threads


def test_results_and_errors_reach_the_awaiting_task() -> None:
    async def run() -> None:
        threads = Threads(2, "test")
        assert await threads.run(int, "7") == 7
        with pytest.raises(ValueError, match="invalid literal"):
            await threads.run(int, "seven")
        # The thread goes on after an error.
        assert await threads.run(threading.get_ident) != threading.get_ident()
        threads.close()
        threads.join()

    asyncio.run(run())


def test_an_idle_thread_takes_the_next_job() -> None:
    async def run() -> set[int]:
        threads = Threads(4, "test")
        used = {await threads.run(threading.get_ident) for _ in range(20)}
        threads.close()
        threads.join()
        return used

    assert len(asyncio.run(run())) == 1


def test_jobs_wait_when_all_threads_are_busy_and_a_cancelled_one_is_not_run() -> None:
    async def run() -> None:
        threads = Threads(1, "test")
        release = threading.Event()
        ran: list[str] = []
        first = threads.run(release.wait, 60)
        cancelled, last = threads.run(ran.append, "cancelled"), threads.run(ran.append, "last")
        cancelled.cancel()
        release.set()
        assert await first
        await last
        assert ran == ["last"]
        threads.close()
        threads.join()

    asyncio.run(run())


def test_ending_threads_finish_their_jobs_and_take_no_more() -> None:
    async def run() -> None:
        threads = Threads(2, "test")
        ran: list[int] = []
        jobs = [threads.run(ran.append, number) for number in range(10)]
        threads.close()
        with pytest.raises(RuntimeError):
            threads.run(ran.append, 10)
        threads.join()
        assert sorted(ran) == list(range(10))
        await asyncio.gather(*jobs)

    asyncio.run(run())


def test_a_job_that_ends_after_its_loop_ends_its_thread_without_a_trace() -> None:
    release = threading.Event()
    failures: list[threading.ExceptHookArgs] = []
    threads = Threads(1, "test")

    async def run() -> None:
        threads.run(release.wait, 60)

    asyncio.run(run())
    before, threading.excepthook = threading.excepthook, failures.append
    try:
        release.set()
        threads.join()
    finally:
        threading.excepthook = before
    assert not failures
