"""The pause between samples: bounded cost, and no long pause because of a silent broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.console.kafka import sampling
from penstock.console.kafka.sampling import Sampler
from tests.console.samples import a_sample, log_dirs


def test_a_silent_broker_does_not_lengthen_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.05, 10.0, 20.0, 21.0])
    answers: list[Any] = [log_dirs({}), None, log_dirs({})]

    async def take(cluster: Any, now_s: float, before: Any = None) -> Any:
        sample = a_sample()
        sample.log_dirs = {1: answers.pop(0)}
        return sample

    monkeypatch.setattr(sampling, "take_sample", take)

    async def pauses() -> list[float]:
        sampler = Sampler(None, lambda: 0.0, lambda: next(clock))  # type: ignore[arg-type]
        found = []
        for _ in range(3):
            await sampler.refresh()
            found.append(sampler.pause_s)
        return found

    # 0.05 s give the shortest pause, the 5 s of a timeout do not count, 1 s gives 20.
    assert asyncio.run(pauses()) == [3.0, 3.0, 20.0]


def test_descriptions_are_used_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three samples are short. A change of leaders makes a whole sample at once."""
    asked: list[str] = []
    leader = 1

    async def take(cluster: Any, now_s: float, before: Any = None) -> Any:
        asked.append("whole" if before is None else "short")
        sample = a_sample(leader=leader, ends={("t", 0): 5})
        sample.log_dirs = {1: log_dirs({}), 2: log_dirs({})}
        return sample

    monkeypatch.setattr(sampling, "take_sample", take)

    async def run() -> None:
        nonlocal leader
        sampler = Sampler(None, lambda: 0.0, lambda: 0.0)  # type: ignore[arg-type]
        for _ in range(7):
            await sampler._sample()
        assert asked == ["whole", "short", "short", "whole", "short", "short", "whole"]
        asked.clear()
        leader = 2
        await sampler._sample()
        assert asked == ["short", "whole"]
        await sampler.refresh()
        assert asked[2:] == ["whole"]

    asyncio.run(run())
