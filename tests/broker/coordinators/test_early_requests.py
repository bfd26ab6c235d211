"""Requests that arrive before the partition of their key is open."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.coordinators import early_requests
from penstock.broker.coordinators.early_requests import EarlyRequests
from penstock.net.deferred import Deferred
from penstock.wire.apis.end_txn import EndTxnResponse
from penstock.wire.schema import Struct
from tests.broker.coordinators.counters import counting
from tests.broker.coordinators.offset_commits import answer, run

SERVED, REFUSED = EndTxnResponse(), EndTxnResponse(error_code=16)


def test_a_request_waits_until_the_partition_is_hosted() -> None:
    async def test() -> None:
        async with counting(elect=False) as counters:
            waiting = counters.read("c")
            assert isinstance(waiting, Deferred) and not waiting.done
            counters.runtime.elected(0)
            assert (await answer(waiting)).value == 0

    run(test)


def test_the_wait_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_requests, "_TIMEOUT_S", 0.0)

    async def test() -> None:
        requests = EarlyRequests()
        waiting = requests.add("a", lambda: SERVED, lambda: REFUSED)
        assert await answer(waiting) is REFUSED
        requests.submit(lambda key: True)

    asyncio.run(test())


def test_only_requests_of_the_partition_are_submitted() -> None:
    async def test() -> None:
        requests = EarlyRequests()
        later: Deferred[Struct] = Deferred()
        here, there, slow = (
            requests.add(key, lambda key=key: later if key == "slow" else SERVED, lambda: REFUSED)  # type: ignore[misc]
            for key in ("here", "there", "slow")
        )
        requests.submit(lambda key: key != "there")
        assert here.value is SERVED and not there.done and not slow.done
        later.resolve(SERVED)
        assert slow.value is SERVED

    asyncio.run(test())


def test_a_closed_connection_ends_the_wait() -> None:
    async def test() -> None:
        requests = EarlyRequests()
        later: Deferred[Struct] = Deferred()
        waiting = requests.add("a", lambda: later, lambda: REFUSED)
        waiting.cancel()
        requests.submit(lambda key: True)
        assert not later.done
        waiting = requests.add("a", lambda: later, lambda: REFUSED)
        requests.submit(lambda key: True)
        waiting.cancel()
        assert later.done

    asyncio.run(test())
