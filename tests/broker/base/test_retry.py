"""Pauses grow with each failure in a row, up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.base.retry import RetryPause


class Middle:
    """No jitter."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def test_pauses_double_up_to_the_limit_and_start_over_after_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def main() -> None:
        pause = RetryPause(Middle(), 1.0, 3.0)
        for _ in range(3):
            await pause.wait()
        pause.reset()
        await pause.wait()

    asyncio.run(main())
    assert slept == pytest.approx([1.0, 2.0, 3.0, 1.0])
