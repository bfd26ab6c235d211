"""Slots that clients take turns for."""

from __future__ import annotations

import asyncio

from penstock.net.fair_slots import FairSlots


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_client_with_much_work_delays_its_own() -> None:
    """With a semaphore, `b` would come last."""

    async def main() -> None:
        slots, began = FairSlots(1), []

        async def work(owner: str) -> None:
            async with slots.slot(owner):
                began.append(owner)
                await asyncio.sleep(0)

        await asyncio.gather(*[work(owner) for owner in "aaaaab"])
        assert began == ["a", "a", "b", "a", "a", "a"]

    asyncio.run(main())


def test_no_more_than_the_slots_are_taken() -> None:
    async def main() -> None:
        slots, running, most = FairSlots(3), 0, 0

        async def work(owner: int) -> None:
            nonlocal running, most
            async with slots.slot(owner):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        await asyncio.gather(*[work(number % 5) for number in range(50)])
        assert most == 3
        assert slots._free == 3
        assert not slots._waiting

    asyncio.run(main())


def test_cancelled_work_gives_its_slot_back() -> None:
    async def main() -> None:
        slots, go_on = FairSlots(1), asyncio.Event()

        async def work() -> None:
            async with slots.slot("a"):
                await go_on.wait()

        first, waits, has_got_it, last = (asyncio.ensure_future(work()) for _ in range(4))
        await _settled()
        waits.cancel()
        await _settled()
        first.cancel()
        await asyncio.sleep(0)
        has_got_it.cancel()
        await _settled()
        go_on.set()
        await asyncio.wait_for(last, 10)
        assert slots._free == 1

    asyncio.run(main())
