"""Background jobs: cleaners, retries, failed logs."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.app.maintenance import Maintenance
from penstock.broker.app.server import system_world
from penstock.broker.base.system_ports import SystemClock
from penstock.broker.healing.full_directories import FullDirectories
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.model.config import BrokerConfig
from penstock.storage import cleaner
from penstock.storage.index_files import OtherSegment
from penstock.testing import broker
from tests.broker.app.compacted_topics import BUSY, COMPACT, of_keys, put, seal
from tests.broker.configs import BROKER, NODE, TOPIC, set_config
from tests.broker.disks import Disk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    create_topic,
    read_all,
    until,
)

pytestmark = pytest.mark.process


def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it() -> None:
    disk = Disk()
    with on_disk(disk, log_cleaner_backoff_ms="10") as running, RawClient(running.bootstrap) as client:
        never = {**COMPACT, "min.cleanable.dirty.ratio": "1"}
        large, small = create_topic(client, configs=never), create_topic(client, configs=never)
        for i in range(40):
            put(client, large, b"k%d" % i, b"x" * 500)
            put(client, small, b"k", b"x" * 500)
        for topic in (large, small):
            seal(client, topic)
        # Room for what is left of one of them, not of the other.
        disk.capacity = disk.used() + 12_000
        for topic in (large, small):
            set_config(client, TOPIC, topic.name, "min.cleanable.dirty.ratio", "0.01")

        until(lambda: len(of_keys(read_all(client, small))) < 10)

        disk.capacity = None
        assert len(of_keys(read_all(client, large))) == 40


def test_the_checks_of_a_second_share_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them run at multiples of half a second of the loop's clock, whenever they were started."""
    turns: dict[str, list[float]] = {"look": [], "check": [], "tick": []}

    def record(owner: Any, method: str, name: str) -> None:
        original = getattr(owner, method)

        def recorded(self: Any, *args: Any) -> Any:
            turns[name].append(asyncio.get_running_loop().time())
            return original(self, *args)

        monkeypatch.setattr(owner, method, recorded)

    record(FullDirectories, "look", "look")
    record(Maintenance, "check_clock", "check")
    record(LoopWatch, "_tick", "tick")
    with broker(config={"penstock.metrics.listener": "127.0.0.1:0"}):
        until(lambda: min(map(len, turns.values())) >= 3)
    for times in turns.values():
        # A slow machine may delay one of them.
        assert abs(median((time + 0.25) % 0.5 - 0.25 for time in times)) < 0.1, turns


def test_as_many_logs_are_compacted_at_once_as_there_are_cleaners(monkeypatch: pytest.MonkeyPatch) -> None:
    together = asyncio.Barrier(2)
    clean, clean_all = cleaner.clean, Maintenance.clean
    are_filled = threading.Event()

    async def clean_together(*args: Any) -> Any:
        await together.wait()
        return await clean(*args)

    async def clean_filled(maintenance: Maintenance) -> None:
        # A round in which only one of the two logs is due has work for one cleaner.
        if are_filled.is_set():
            await clean_all(maintenance)

    monkeypatch.setattr(cleaner, "clean", clean_together)
    monkeypatch.setattr(Maintenance, "clean", clean_filled)
    with broker(config=BUSY) as running, RawClient(running.bootstrap) as client:
        set_config(client, BROKER, NODE, "log.cleaner.threads", "2")
        topics = [create_topic(client, configs=COMPACT) for _ in range(2)]
        for i in range(20):
            for topic in topics:
                put(client, topic, b"k", b"%d" % i * 50)
        for topic in topics:
            seal(client, topic)
        are_filled.set()
        for topic in topics:
            until(lambda topic=topic: len(of_keys(read_all(client, topic))) == 1)  # type: ignore[misc]


def test_the_scrubber_is_told_of_a_segment_of_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stays cleanable: it is compacted once the segment has been replaced."""
    segments = SimpleNamespace(exchanged=set())
    partition: Any = SimpleNamespace(name="a-0", log=SimpleNamespace(segments=segments))
    due = [(partition, None)]

    async def dirtiest(_: Maintenance, tried: object) -> Any:
        return due.pop() if due else None

    async def compact(*_: Any) -> bool:
        raise OtherSegment("/data/topics/a/partition-0/00000000000000000004", 4)

    async def check() -> None:
        config = BrokerConfig({})
        clock_watch = SimpleNamespace(now_ms=lambda: 1)
        maintenance = Maintenance(config, [], None, None, clock_watch, system_world(config), None)  # type: ignore[arg-type]
        await maintenance.clean()
        assert segments.exchanged == {4}
        assert not maintenance._uncleanable

    monkeypatch.setattr(Maintenance, "_dirtiest", dirtiest)
    monkeypatch.setattr(Maintenance, "_compact", compact)
    asyncio.run(check())


def test_without_cleaners_nothing_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        config = BrokerConfig({"log.cleaner.threads": "0"})
        clock_watch = SimpleNamespace(now_ms=lambda: 1)
        maintenance = Maintenance(config, None, None, None, clock_watch, system_world(config), None)  # type: ignore[arg-type]
        looked: list[object] = []
        monkeypatch.setattr(maintenance, "_dirtiest", looked.append)
        await maintenance.clean()
        assert looked == []

    asyncio.run(check())


def test_the_search_for_logs_to_compact_lets_the_event_loop_run() -> None:
    """However many partitions a broker has, and though none of them is compacted."""
    seen_at_turn: list[int] = []
    partitions = [_Uncompacted() for _ in range(1_000)]

    async def search() -> None:
        maintenance = Maintenance(
            BrokerConfig({}),
            cast(Any, _Hosted(partitions)),
            cast(Any, None),
            cast(Any, None),
            cast(Any, SimpleNamespace(now_ms=lambda: 0)),
            cast(Any, SimpleNamespace(clock=SystemClock(), files=None, workers=None)),
            cast(Any, None),
        )
        searching = asyncio.ensure_future(maintenance.clean())
        while not searching.done():
            await asyncio.sleep(0)
            seen_at_turn.append(sum(each.is_seen for each in partitions))

    asyncio.run(search())
    assert seen_at_turn[-1] == len(partitions)
    assert max(later - earlier for earlier, later in pairwise([0, *seen_at_turn])) <= 100


class _Hosted(list["_Uncompacted"]):
    checkpoints = None


class _Uncompacted:
    """A partition whose log is not compacted."""

    def __init__(self) -> None:
        self.is_seen = False

    @property
    def log(self) -> Any:
        self.is_seen = True
        return SimpleNamespace(config=SimpleNamespace(compact=False))
