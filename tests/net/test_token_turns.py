"""Turns of client addresses at the verification of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.net.token_turns import TokenTurns


class Worker:
    """A thread whose work ends by hand."""

    def __init__(self) -> None:
        self.running: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.running.append((work, done))
        return await done

    def finish(self) -> Any:
        work, done = self.running.pop(0)
        try:
            done.set_result(work())
        except ValueError as e:
            done.set_exception(e)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_tokens_are_checked_one_at_a_time_and_addresses_take_turns() -> None:
    async def main() -> None:
        worker, order = Worker(), list[str]()
        turns = TokenTurns(worker.run)
        tasks = [
            asyncio.ensure_future(turns.run(name[0], lambda name=name: order.append(name)))  # type: ignore[misc]
            for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2")
        ]
        for _ in tasks:
            await settle()
            assert len(worker.running) == 1
            worker.finish()
        await asyncio.gather(*tasks)
        assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]

    asyncio.run(main())


def test_a_failure_is_the_result_of_its_own_token() -> None:
    async def main() -> None:
        worker = Worker()
        turns = TokenTurns(worker.run)

        def fail() -> None:
            raise ValueError("bad")

        first = asyncio.ensure_future(turns.run("a", fail))
        second = asyncio.ensure_future(turns.run("a", lambda: "good"))
        await settle()
        worker.finish()
        await settle()
        worker.finish()
        with pytest.raises(ValueError, match="bad"):
            await first
        assert await second == "good"

    asyncio.run(main())
