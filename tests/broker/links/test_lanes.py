"""Far sources: several requests to a broker are under way at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.links import worker
from penstock.broker.links.source_cluster import SourceCluster
from penstock.broker.links.source_fetcher import SourceFetcher
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at, link, send, values
from tests.waiting import eventually

PARTITIONS = 6


def test_a_source_that_turns_out_to_be_far_is_fetched_in_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and nothing comes twice, when partitions move to other connections."""
    far: list[bool] = []
    made: list[bool] = []

    class Counted(SourceFetcher):
        def __init__(self, *args: Any, is_far: bool, **options: Any) -> None:
            made.append(is_far)
            super().__init__(*args, is_far=is_far, **options)

    monkeypatch.setattr(worker, "SourceFetcher", Counted)
    monkeypatch.setattr(SourceCluster, "is_far", property(lambda _: bool(far)))
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders", PARTITIONS)
        link(new, old)
        for partition in range(PARTITIONS):
            send(old, "orders", range(20), partition)
            ends_at(new, "orders", 20, partition)
        assert made == [False]
        far.append(True)
        eventually(lambda: made == [False, True, True, True, True])
        for partition in range(PARTITIONS):
            send(old, "orders", range(20, 40), partition)
            ends_at(new, "orders", 40, partition)
            assert values(new, "orders", partition) == list(range(40))


def test_the_shortest_of_the_last_round_trips_counts() -> None:
    """A busy source responds late most of the time, and is not far."""
    source = SourceCluster.__new__(SourceCluster)
    for times, is_far in (([], False), ([0.5], True), ([0.5, 0.004, 0.6], False), ([0.08, 0.09], True)):
        source._round_trips_s = times  # type: ignore[assignment]
        assert source.is_far is is_far


@pytest.mark.parametrize(
    ("times", "asked", "is_far"),
    [
        ([0.5, 0.001], 2, False),
        ([0.001], 1, False),
        ([0.5, 0.4, 0.3, 0.2, 0.004], 5, False),
        ([0.08] * 5, 5, True),
    ],
)
def test_a_source_that_is_slow_once_is_not_taken_for_far(
    times: list[float], asked: int, is_far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link does not go back to one lane: the first request decides nothing alone."""
    now, left = 0.0, iter(times)

    async def respond(*_: object) -> None:
        nonlocal now
        now += next(left)

    source = SourceCluster.__new__(SourceCluster)
    source._round_trips_s = deque(maxlen=5)
    source._clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(SourceCluster, "_any", lambda _, *request: respond(*request))
    asyncio.run(source._time_round_trip())
    assert (len(source._round_trips_s), source.is_far) == (asked, is_far)
