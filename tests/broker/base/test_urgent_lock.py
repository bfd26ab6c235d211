"""A lock whose urgent waiters come first."""

from __future__ import annotations

import asyncio

from penstock.broker.base.urgent_lock import UrgentLock


async def hold(lock: UrgentLock, is_urgent: bool, name: str, order: list[str]) -> None:
    async with lock.held(is_urgent):
        order.append(name)
        await asyncio.sleep(0)


def test_urgent_waiters_precede_others_and_each_kind_keeps_its_order() -> None:
    order: list[str] = []

    async def main() -> None:
        lock = UrgentLock()
        async with lock.held(False):
            waiting = [
                asyncio.create_task(hold(lock, name.startswith("u"), name, order))
                for name in ("a", "b", "u1", "c", "u2")
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        async with lock.held(False):
            order.append("free again")

    asyncio.run(main())
    assert order == ["u1", "u2", "a", "b", "c", "free again"]


def test_a_cancelled_waiter_is_skipped_also_if_it_is_its_turn() -> None:
    order: list[str] = []

    async def main() -> None:
        lock = UrgentLock()
        async with lock.held(False):
            first = asyncio.create_task(hold(lock, False, "first", order))
            second = asyncio.create_task(hold(lock, False, "second", order))
            third = asyncio.create_task(hold(lock, False, "third", order))
            await asyncio.sleep(0)
            second.cancel()
        # The lock is with the first one now, which has not run yet.
        first.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)

    asyncio.run(main())
    assert order == ["third"]
