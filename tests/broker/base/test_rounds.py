"""Rounds go on after a failure, and end when they are stopped."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.base.rounds import Rounds


def test_a_failed_round_is_reported_and_followed_by_another() -> None:
    failures: list[tuple[Exception, bool]] = []
    errors: list[Exception] = [ValueError("a bug"), OSError(5, "input/output error")]

    async def go() -> None:
        done = asyncio.Event()

        async def run() -> None:
            if len(failures) < len(errors):
                raise errors[len(failures)]
            done.set()

        rounds = Rounds(run, lambda: 0, lambda error, is_expected: failures.append((error, is_expected)))
        rounds.start()
        await done.wait()
        await rounds.stop()

    asyncio.run(go())
    assert failures == [(errors[0], False), (errors[1], True)]


@pytest.mark.parametrize("waits_first", [True, False])
def test_the_first_round_may_come_after_a_pause(waits_first: bool) -> None:
    steps: list[str] = []

    async def go() -> None:
        paused = asyncio.Event()

        async def run() -> None:
            steps.append("round")

        def pause_s() -> float:
            steps.append("pause")
            paused.set()
            return 3600

        rounds = Rounds(run, pause_s, lambda error, is_expected: None, waits_first=waits_first)
        rounds.start()
        await paused.wait()
        await rounds.stop()

    asyncio.run(go())
    assert steps == (["pause"] if waits_first else ["round", "pause"])


def test_a_stop_waits_for_the_round_that_is_under_way() -> None:
    ended: list[str] = []

    async def go() -> None:
        begun = asyncio.Event()

        async def run() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("round")

        rounds = Rounds(run, lambda: 0, lambda error, is_expected: None, waits_first=False)
        await rounds.stop()  # before it was started
        rounds.start()
        await begun.wait()
        await rounds.stop()

    asyncio.run(go())
    assert ended == ["round"]
