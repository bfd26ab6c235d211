"""`Queue` with a broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.client import (
    JSON,
    ClientClosed,
    LockLost,
    MisusedClient,
    NotReachable,
    Queue,
    QueueMessage,
    Refused,
    RetryPolicy,
)
from penstock.net.peer_errors import PeerLost as LostConnection
from tests.client.queues.sharing import lag, quick, send


def play(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


def test_each_message_goes_to_one_member(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, *map(str, range(40)))
        seen: list[bytes] = []
        one, two = (quick(bootstrap, name, group=name, max_batch=5) for _ in range(2))

        async def consume(queue: Queue) -> None:
            async for message in queue:
                seen.append(message.value)
                if len(seen) == 40:
                    one.stop()
                    two.stop()

        async with one, two:
            await asyncio.gather(consume(one), consume(two))
        assert sorted(map(int, seen)) == list(range(40))
        assert lag(bootstrap, name) == 0

    play(work())


def test_outcomes(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, "1", "2", "3")
        async with quick(
            bootstrap, name, group=name, acknowledgement="explicit", value_serializer=JSON
        ) as queue:
            one, two, three = await queue.poll(wait=60)
            await one.accept()
            await two.release()
            await three.reject()
            (again,) = await queue.poll(wait=60)
            assert (again.value, again.delivery_count) == (2, 2)
            await again.renew()
            with pytest.raises(MisusedClient, match="one outcome"):
                one.accept()
        # The queue was closed without an outcome for the second message.
        async with quick(bootstrap, name, group=name) as queue:
            assert [message.value async for message in _first(queue, 1)] == [b"2"]

    play(work())


async def _first(queue: Queue, count: int) -> Any:
    for _ in range(count):
        yield await anext(queue)


def test_a_body_that_raises_does_not_accept_its_message(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, "a")
        with pytest.raises(ZeroDivisionError):
            async with quick(bootstrap, name, group=name) as queue:
                async for _ in queue:
                    1 / 0  # noqa: B018
        async with quick(bootstrap, name, group=name) as queue:
            assert (await anext(queue)).value == b"a"

    play(work())


def test_locks_are_renewed_while_a_message_is_processed(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, "a")
        async with quick(bootstrap, name, group=name) as queue:
            message = await anext(queue)
            now_s = asyncio.get_running_loop().time()
            message.deadline_s = now_s + 10  # as if 20 of the 30 seconds had passed
            queue._running().wake()
            while message.deadline_s < now_s + 30:  # noqa: ASYNC110 - a renewal has no event
                await asyncio.sleep(0.01)
            assert message.is_held
            await message.accept()

    play(work())


def test_a_handler_runs_until_the_queue_is_closed(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, *map(str, range(50)), "bad")
        done: Counter[bytes] = Counter()
        async with quick(bootstrap, name, group=name) as queue:

            async def handle(message: QueueMessage) -> None:
                done[message.value] += 1
                if message.value == b"bad":
                    raise ValueError
                if len(done) == 51 and done[b"bad"] == 3:
                    await queue.close()

            running = asyncio.create_task(
                queue.run(handle, concurrency=4, retry=RetryPolicy(attempts=3, backoff=0.001))
            )
            with pytest.raises(MisusedClient, match="already running"):
                await asyncio.gather(queue.run(handle))
            while lag(bootstrap, name) != 0:
                await asyncio.wait([running], timeout=0.05)
            await queue.close()
            await running
        assert done == Counter({str(n).encode(): 1 for n in range(50)}) + Counter({b"bad": 3})

    play(work())


def test_a_queue_that_is_killed_releases_its_messages(bootstrap: str, name: str) -> None:
    async def work() -> None:
        send(bootstrap, name, "a")
        queue = quick(bootstrap, name, group=name)
        await queue.start()
        message = await anext(queue)
        assert queue._member is not None
        for link in queue._member._links.values():
            link._peer._give_up(LostConnection("cut"))
        with pytest.raises(LockLost, match="cut"):
            await message.accept()
        assert (await anext(queue)).value == b"a"
        await queue.close()

    play(work())


def test_errors(bootstrap: str, name: str) -> None:
    with pytest.raises(MisusedClient, match="topics"):
        Queue(bootstrap, group="g")
    with pytest.raises(MisusedClient, match="HOST:PORT"):
        Queue("nowhere", "t", group="g")

    async def work() -> None:
        with pytest.raises(NotReachable, match="connect_timeout"):
            await Queue("127.0.0.1:1", "t", group="g", connect_timeout=0.1).start()
        queue = quick(bootstrap, name, group=name)
        with pytest.raises(MisusedClient, match="not started"):
            await queue.poll()
        async with queue:
            pass
        with pytest.raises(ClientClosed):
            await queue.poll()
        await queue.close()
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            await quick(bootstrap, name, group=name, visibility_timeout=0.001).start()

    play(work())
