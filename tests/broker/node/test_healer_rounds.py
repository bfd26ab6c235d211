"""When the healer decides: not right after silence, and not again while nothing has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar

import pytest

from penstock.broker.node.healer import Healer
from penstock.model.config import BrokerConfig
from penstock.wire.apis.broker_heartbeat import FailedTopic
from penstock.wire.schema import Struct
from tests.metadata.stage import Stage

T = TypeVar("T")
SESSION_MS = 3000
DELAY_MS = 20_000
ON = {"penstock.self.healing.enable": "true", "penstock.self.healing.delay.ms": str(DELAY_MS)}


class World:
    """A stage with brokers 1 to 4, of which 3 is gone since 0, and a healer that decides on it."""

    def __init__(self, **settings: str) -> None:
        self.stage, self.now_ms, self.decisions = Stage(4), 0.0, 0
        self.partition = self.stage.topic("t", [1, 2, 3])
        config = BrokerConfig({"node.id": "1", "broker.session.timeout.ms": str(SESSION_MS), **settings})
        controller: Any = self
        self.healer = Healer(
            config,
            self.stage.image,
            controller,
            lambda: self.stage.policy,
            lambda: (),
            lambda: self.now_ms,
        )
        self.stage.fence(3)
        self.healer.observed()

    async def change(self, decide: Callable[[], tuple[Sequence[Struct], T]]) -> T:
        """As the controller does it."""
        self.decisions += 1
        records, result = decide()
        self.stage.commit(records)
        self.healer.observed()
        return result

    def pass_time(self, until_ms: float) -> None:
        """Let the controller's loop run, twice a second."""
        while self.now_ms < until_ms:
            self.now_ms += 500
            asyncio.run(self.healer.work())


def test_the_healer_decides_in_time_and_then_only_after_a_change() -> None:
    world = World(**ON)
    world.healer.begin()
    world.pass_time(DELAY_MS - 500)
    assert (world.partition.adding, world.decisions) == ([], 1)
    world.pass_time(DELAY_MS)
    assert world.partition.adding == [4]
    decisions = world.decisions
    world.pass_time(DELAY_MS + 5000)
    assert world.decisions == decisions + 1
    world.stage.beat(3)
    world.healer.observed()
    world.pass_time(DELAY_MS + 6000)
    assert not world.partition.reassigning


def test_a_new_controller_gives_brokers_time_for_a_heartbeat() -> None:
    """By what it has observed as a follower the broker is gone for long."""
    world = World(**ON)
    world.now_ms = 10 * DELAY_MS
    world.healer.begin()
    world.pass_time(10 * DELAY_MS + 2 * SESSION_MS - 500)
    assert world.decisions == 0
    world.pass_time(10 * DELAY_MS + 2 * SESSION_MS)
    assert world.partition.adding == [4]


def test_a_controller_that_was_stalled_gives_missing_brokers_the_whole_delay() -> None:
    world = World(**ON)
    world.healer.begin()
    world.pass_time(DELAY_MS - 1000)
    world.now_ms += 10 * DELAY_MS
    world.pass_time(world.now_ms + 2 * SESSION_MS - 500)
    assert world.partition.adding == []
    world.pass_time(world.now_ms + 1000)
    assert world.partition.adding == [4]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_disabled_healer_decides_nothing(enabled: bool) -> None:
    world = World(**(ON if enabled else {}))
    world.healer.begin()
    assert world.healer.next_ms == (500 if enabled else inf)
    world.pass_time(10_000)
    assert world.decisions == (1 if enabled else 0)


def test_a_failed_decision_does_not_end_the_controllers_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    world = World(**ON)
    world.healer.begin()
    monkeypatch.setattr("penstock.broker.node.healer.decide", fail)
    world.pass_time(DELAY_MS)
    assert world.partition.adding == []
    monkeypatch.undo()
    world.stage.beat(4)
    world.stage.fence(4)
    world.stage.beat(4)
    world.healer.observed()
    world.pass_time(DELAY_MS + 1000)
    assert world.partition.adding == [4]


def test_replicas_in_failed_directories_of_a_live_broker() -> None:
    world = World(**ON)
    world.stage.beat(3)
    world.healer.observed()
    world.healer.begin()
    listed = [FailedTopic(topic_id=world.partition.topic_id, partitions=[0])]
    world.stage.alter(world.partition, [1, 2])
    world.pass_time(5000)
    for _ in range(2):
        world.healer.failed_replicas(3, listed)
    assert world.healer.notes() == [
        "1 replicas of broker 3 are in a failed data directory; they are rebuilt on other brokers in 20 s"
    ]
    world.pass_time(5000 + DELAY_MS - 500)
    assert not world.partition.reassigning
    world.pass_time(5000 + DELAY_MS)
    assert (world.partition.adding, world.partition.removing) == ([4], [3])
    assert world.healer.notes() == [
        "1 replicas of broker 3 are in a failed data directory, and are not rebuilt yet"
    ]
    # The broker was restarted with a good disk.
    world.healer.failed_replicas(3, [])
    world.pass_time(7000 + DELAY_MS)
    assert not world.partition.reassigning
    assert world.healer.notes() == []


def test_notes_name_the_missing_broker_and_its_replicas() -> None:
    world = World(**ON)
    world.now_ms = 5000
    assert world.healer.notes() == [
        "broker 3 has been gone for 5 s; its 1 replicas are rebuilt on other brokers in 15 s"
    ]
    world.stage.fence(4)
    world.now_ms = 25_000
    assert world.healer.notes() == [
        "broker 3 has been gone for 25 s; 1 of its replicas are not rebuilt yet",
        "1 partition(s) with lost replicas have more replicas than brokers are up (2)",
    ]
    assert World().healer.notes() == []


SHARE = {"penstock.balance.new.brokers": "true", "penstock.self.healing.delay.ms": "0"}


def shared() -> World:
    """The healer needs a plan of several slices for a new broker, and has begun it."""
    world = World(**SHARE)
    world.stage.beat(3)
    for n in range(4):
        world.stage.topic(f"u{n}", *[[1, 2, 3]] * 100)
    world.stage.register(5)
    world.stage.beat(5)
    world.healer.observed()
    world.healer.begin()
    while world.decisions == 0:
        world.pass_time(world.now_ms + 500)
    return world


def moving(world: World) -> int:
    return len(world.stage.image.reassigning)


def test_a_share_is_planned_in_turns_of_the_controller_loop() -> None:
    world = shared()
    turns = 0
    while world.healer.next_ms == world.now_ms:
        asyncio.run(world.healer.work())
        turns += 1
    assert turns > 10
    assert (moving(world), world.decisions) == (0, 1)
    world.pass_time(world.healer.next_ms)
    assert moving(world) > 0


def test_the_plan_of_a_share_is_discarded_when_a_broker_goes() -> None:
    world = shared()
    asyncio.run(world.healer.work())
    world.stage.fence(2)
    world.healer.observed()
    asyncio.run(world.healer.work())
    assert world.healer.next_ms > world.now_ms
    world.pass_time(world.now_ms + 10 * DELAY_MS)
    assert moving(world) == 0


def test_a_share_whose_plan_fails_is_not_planned_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> Iterator[None]:
        yield
        raise KeyError("a defect")

    monkeypatch.setattr("penstock.metadata.healing.rebalance_steps", failing)
    world = shared()
    world.pass_time(world.now_ms + 10 * DELAY_MS)
    assert (moving(world), world.decisions) == (0, 1)
