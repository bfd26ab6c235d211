"""Samples: bounded cost, no long pause because of a silent broker, and doubt while brokers are silent."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from penstock.console.kafka import sampling
from penstock.console.kafka.sampling import Sampler
from tests.console.samples import a_sample, log_dirs


def test_a_silent_broker_does_not_lengthen_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.05, 1.0, 1.05, 10.0, 20.0, 21.0])
    times = count(step=5.0)
    answers: list[Any] = [log_dirs({}), log_dirs({}), None, log_dirs({})]

    async def take(cluster: Any, now: Any, before: Any = None) -> Any:
        sample = a_sample(next(times))
        sample.log_dirs = {1: answers.pop(0)}
        return sample

    monkeypatch.setattr(sampling, "take_sample", take)

    async def pauses() -> list[float]:
        sampler = Sampler(None, lambda: 0.0, lambda: next(clock))  # type: ignore[arg-type]
        found = []
        for _ in range(4):
            await sampler.refresh()
            found.append(sampler.pause_s)
        return found

    # 0.05 s give the shortest pause, the 5 s of a timeout do not count, 1 s gives 20.
    assert asyncio.run(pauses()) == [3.0, 3.0, 3.0, 20.0]


def test_descriptions_are_used_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples give the first rates. Then two of three are short. A change makes a whole one at once."""
    asked: list[str] = []
    leader, times = 1, count(step=5.0)

    async def take(cluster: Any, now: Any, before: Any = None) -> Any:
        asked.append("whole" if before is None else "short")
        sample = a_sample(next(times), leader=leader, ends={("t", 0): 5})
        sample.log_dirs = {1: log_dirs({}), 2: log_dirs({})}
        return sample

    monkeypatch.setattr(sampling, "take_sample", take)

    async def run() -> None:
        nonlocal leader
        sampler = Sampler(None, lambda: 0.0, lambda: 0.0)  # type: ignore[arg-type]
        for _ in range(7):
            await sampler._sample()
        assert asked == ["whole", "whole", "short", "short", "whole", "short", "short"]
        asked.clear()
        await sampler._sample()
        assert asked == ["whole"]
        asked.clear()
        leader = 2
        await sampler._sample()
        assert asked == ["short", "whole"]
        await sampler.refresh()
        assert asked[2:] == ["whole"]

    asyncio.run(run())


def test_a_watched_state_is_doubted_while_brokers_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page showed "Healthy" for as long as brokers did not respond, and other pages nothing at all."""
    now_s = 0.0
    answered = asyncio.Event()

    async def take(cluster: Any, now: Any, before: Any = None) -> Any:
        await answered.wait()
        return a_sample(now_s)

    monkeypatch.setattr(sampling, "take_sample", take)
    for name, value in {"_PAUSE_S": 0.0, "_PAUSE_FACTOR": 0.0, "_LOOK_S": 0.01}.items():
        monkeypatch.setattr(sampling, name, value)

    async def run() -> None:
        nonlocal now_s
        sampler = Sampler(_Connections(), lambda: now_s, lambda: now_s)  # type: ignore[arg-type]
        answered.set()

        def doubt() -> str | None:
            return sampler.doubt

        async with aclosing(sampler.updates()) as updates:
            await anext(updates)
            answered.clear()
            await asyncio.sleep(0)
            assert doubt() is None
            now_s += 300.0
            await asyncio.wait_for(anext(updates), 10.0)
            assert doubt() == "the brokers have not responded for 300 s"
            assert await asyncio.wait_for(sampler.current(), 10.0) is sampler.history.last
            answered.set()
            while doubt() is not None:
                await asyncio.wait_for(anext(updates), 10.0)
        sampler.close()

    asyncio.run(run())


class _Connections:
    def close(self) -> None: ...
