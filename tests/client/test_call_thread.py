"""Calls of a consumer on one thread, and those that come while a callback waits for the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from penstock.client.call_thread import CallThread


def play(test: Callable[[], Awaitable[object]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def test_calls_are_made_in_their_order_on_one_thread() -> None:
    async def test() -> None:
        thread = CallThread("calls", asyncio.get_running_loop())
        made: list[tuple[int, int]] = []
        calls = [thread.call(lambda n=n: made.append((n, threading.get_ident()))) for n in range(5)]  # type: ignore[misc]
        await asyncio.gather(*calls)
        thread.shut_down()

        assert [number for number, _ in made] == [0, 1, 2, 3, 4]
        assert {ident for _, ident in made}.isdisjoint({threading.get_ident()})
        assert len({ident for _, ident in made}) == 1

    play(test)


def test_a_callback_that_waits_for_the_loop_makes_calls() -> None:
    """As a handler does that commits while its partition is revoked."""

    async def test() -> None:
        thread = CallThread("calls", asyncio.get_running_loop())

        async def commit() -> int:
            return await thread.call(threading.get_ident)

        def fetch() -> tuple[int, int]:
            return threading.get_ident(), thread.on_loop(commit())

        fetching, committing = await thread.call(fetch)
        thread.shut_down()
        assert fetching == committing

    play(test)


def test_calls_of_a_coroutine_are_made_before_its_callback_goes_on() -> None:
    async def test() -> None:
        thread = CallThread("calls", asyncio.get_running_loop())
        made: list[str] = []

        async def store() -> None:
            thread.submit(lambda: made.append("store"))

        def fetch() -> None:
            thread.on_loop(store())
            made.append("commit")

        await thread.call(fetch)
        thread.shut_down()
        assert made == ["store", "commit"]

    play(test)


def test_a_call_raises_its_error_and_others_go_on() -> None:
    def fail() -> None:
        raise ValueError("no such partition")

    async def test() -> None:
        thread = CallThread("calls", asyncio.get_running_loop())
        with pytest.raises(ValueError, match="no such partition"):
            await thread.call(fail)
        assert await thread.call(lambda: 7) == 7
        thread.shut_down()

    play(test)


def test_a_callback_does_not_wait_for_a_loop_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.call_thread._LOOP_STEP_S", 0.01)
    loop = asyncio.new_event_loop()
    thread = CallThread("calls", loop)

    async def never_run() -> None:
        raise AssertionError

    coroutine = never_run()
    failed = thread.submit(lambda: thread.on_loop(coroutine))
    time.sleep(0.05)  # the callback waits for a loop that does not run
    loop.close()
    with pytest.raises(TimeoutError, match="closed"):
        failed.result(10)
    coroutine.close()
    thread.shut_down()
