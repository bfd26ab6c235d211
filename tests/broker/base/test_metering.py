"""Quotas at one request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker.base import metering
from penstock.broker.base.metering import RequestMeter, timed
from penstock.net.listener import Listener
from penstock.quotas.clients import ClientLimits
from penstock.quotas.rates import DEFAULT_WINDOWS, Meter

INTERNAL = Listener("INTERNAL", "", 0)


def limits(**meters: Any) -> ClientLimits:
    return ClientLimits(**({"produce": None, "fetch": None, "request": None, "mutations": None} | meters))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nanoseconds of the processor's time."""
    now = [0]
    monkeypatch.setattr(metering, "perf_counter_ns", lambda: now[0])
    return now


def test_waiting_is_not_charged(clock: list[int]) -> None:
    request = Meter(DEFAULT_WINDOWS, 1000.0)
    meter = RequestMeter(limits(request=request), lambda: 0)
    clock[0] += 1_000_000_000
    meter.pause()
    clock[0] += 90_000_000_000
    meter.resume()
    clock[0] += 1_000_000_000
    meter.charge_time()
    meter.charge_time()

    assert request._rate.measure(0)[0] == 20.0, "two seconds in ten"


def test_the_steps_of_a_coroutine_are_charged(clock: list[int]) -> None:
    request = Meter(DEFAULT_WINDOWS, 1000.0)
    meter = RequestMeter(limits(request=request), lambda: 0)
    meter.pause()

    async def work() -> str:
        clock[0] += 1_000_000_000
        await pause()
        clock[0] += 2_000_000_000
        try:
            await failing()
        except ValueError:
            clock[0] += 1_000_000_000
        return "done"

    async def pause() -> None:
        await asyncio.sleep(0)
        clock[0] += 0

    async def failing() -> None:
        asyncio.get_running_loop().call_soon(lambda: clock.__setitem__(0, clock[0] + 50_000_000_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise ValueError

    assert asyncio.run(timed(work(), meter)) == "done"
    meter.charge_time()
    assert request._rate.measure(0)[0] == 40.0, "four seconds in ten"


def test_errors_and_cancellations_pass_through(clock: list[int]) -> None:
    meter = RequestMeter(limits(), lambda: 0)
    cancelled: list[bool] = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def waiting() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def run() -> None:
        with pytest.raises(KeyError):
            await timed(failing(), meter)
        task = asyncio.ensure_future(timed(waiting(), meter))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cancelled == [True]


def test_a_throttled_fetch_is_not_charged() -> None:
    fetch = Meter(DEFAULT_WINDOWS, 100.0)
    meter = RequestMeter(limits(fetch=fetch), lambda: 0)

    assert meter.charge_fetch(2000) == 10_000
    assert fetch.throttle_ms(0) == 0
    assert meter.fetch_bytes_max == 1000
