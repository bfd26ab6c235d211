"""A limit for each client: what exceeds it waits, in order."""

from __future__ import annotations

import asyncio

from penstock.net.client_limit import ClientLimit

_LIMIT = 1000
_HALF = _LIMIT // 2


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_clients_wait_in_order() -> None:
    async def main() -> None:
        limit, admitted = ClientLimit(_LIMIT), []

        async def enter(owner: str, number: int, size: int) -> None:
            await limit.enter(owner, size)
            admitted.append((owner, number))

        tasks = [asyncio.ensure_future(enter("a", number, _HALF)) for number in range(3)]
        # A small one does not overtake a large one that waits.
        tasks.append(asyncio.ensure_future(enter("a", 3, 1)))
        tasks.append(asyncio.ensure_future(enter("b", 0, _HALF)))
        await _settled()
        assert admitted == [("a", 0), ("a", 1), ("b", 0)]
        limit.leave("a", _HALF)
        await _settled()
        assert admitted[3:] == [("a", 2)]
        limit.leave("a", _HALF)
        await _settled()
        assert admitted[4:] == [("a", 3)]
        for owner, size in (("a", _HALF), ("a", 1), ("b", _HALF)):
            limit.leave(owner, size)
        assert not limit._used
        assert not limit._waiting
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_more_than_the_limit_is_used_alone() -> None:
    async def main() -> None:
        limit = ClientLimit(_LIMIT)
        await limit.enter("a", 9 * _LIMIT)
        second = asyncio.ensure_future(limit.enter("a", 1))
        await _settled()
        assert not second.done()
        limit.leave("a", 9 * _LIMIT)
        await asyncio.wait_for(second, 10)

    asyncio.run(main())


def test_a_task_that_ends_while_it_waits_takes_nothing() -> None:
    async def main() -> None:
        limit = ClientLimit(_LIMIT)
        await limit.enter("a", _LIMIT)
        waiting, last = (asyncio.ensure_future(limit.enter("a", _LIMIT)) for _ in range(2))
        await _settled()
        waiting.cancel()
        await _settled()
        limit.leave("a", _LIMIT)
        await asyncio.wait_for(last, 10)

    asyncio.run(main())
