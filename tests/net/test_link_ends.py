"""The ends of mirrors, against a cluster whose leaders learn the states of topics late."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.model.ids import TopicId
from penstock.net import link_ends
from penstock.net.link_client import LinkError, Mirror, View
from penstock.wire.apis.describe_log_dirs import LinkReport, MirroredLog

TOPIC = MirroredTopic("west", MirrorState.MIRRORING, TopicId(bytes(16)), "orders")


class LateLeader:
    """One mirrored partition. Its leader applies a state when it has been asked `late` times since.

    Records arrive at the source whenever the leader mirrors. The mirror stops as soon as it may.
    """

    def __init__(self, state: MirroredTopic, *, applied: MirroredTopic, late: int) -> None:
        self.states = [state]
        self.applied = applied
        self.mirrored_since = False
        self._late = late
        self._asked = 0

    async def set_state(self, cluster: object, topics: Mapping[str, MirroredTopic]) -> None:
        if topics:
            self.states.append(topics["orders"])
            self._asked = 0

    async def look(self, cluster: object, link: str = "", topics: Collection[str] = ()) -> View:
        self._asked += 1
        if self._asked > self._late:
            self.applied = self.states[-1]
        self.mirrored_since |= self.applied.state is MirrorState.MIRRORING
        stopped = self.applied.state in (MirrorState.PROMOTING, MirrorState.CLOSING)
        log = MirroredLog(
            link="west",
            phase="stopped" if stopped else "mirroring",
            end_offset=10,
            is_closed=self.applied.state is MirrorState.CLOSING,
            topic_state=self.applied.numbered_state,
        )
        mirrors = [Mirror("orders", 0, log)]
        return View({"orders": self.states[-1]}, {"orders": 1}, mirrors, self.reports(), self.silent())

    def reports(self) -> dict[str, list[LinkReport]]:
        return {}

    def silent(self) -> tuple[str, ...]:
        return ()

    async def link_configs(self, cluster: object, link: str) -> dict[str, str]:
        return {}


def promote(leader: LateLeader, monkeypatch: pytest.MonkeyPatch, wait_s: float = 30) -> list[str]:
    """Promote the topic without a fence; the states that were set."""
    for name in ("set_state", "look", "link_configs"):
        monkeypatch.setattr(link_ends, name, getattr(leader, name))
    monkeypatch.setattr(link_ends, "_POLL_S", 0.001)
    cluster: Any = None
    topics = {"orders": leader.states[-1]}
    asyncio.run(link_ends.end_mirrors(cluster, "west", topics, complete=True, wait_s=wait_s))
    return [each.numbered_state for each in leader.states[1:]]


PROMOTING = TOPIC._replace(state=MirrorState.PROMOTING)


@pytest.mark.parametrize("late", [0, 1, 7])
def test_a_leader_that_has_stopped_for_an_earlier_promotion_mirrors_again_first(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was resumed, and the leader does not know that yet."""
    leader = LateLeader(TOPIC, applied=PROMOTING, late=late)
    assert promote(leader, monkeypatch) == ["promoting", "closing", "promoted"]
    assert leader.mirrored_since


def test_a_promotion_that_is_repeated_looks_for_new_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source takes records while the first one waits for other partitions."""
    leader = LateLeader(PROMOTING, applied=PROMOTING, late=2)
    assert promote(leader, monkeypatch) == ["mirroring", "promoting", "closing", "promoted"]
    assert leader.mirrored_since


def test_a_promotion_with_a_fence_goes_on_without_lifting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = PROMOTING._replace(fence=7)
    leader = LateLeader(fenced, applied=PROMOTING, late=3)
    assert promote(leader, monkeypatch) == ["closing.7", "promoted.7"]
    assert not leader.mirrored_since


def test_a_leader_that_learns_no_state_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = LateLeader(TOPIC, applied=PROMOTING, late=1 << 30)
    with pytest.raises(LinkError, match="1 of 1 partitions are not complete: orders-0"):
        promote(leader, monkeypatch, wait_s=0.05)
    assert leader.states == [TOPIC]


def test_a_promotion_without_a_fence_lifts_the_one_of_a_former_promotion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request for that fence may come late. The number says which fences brokers lift."""
    given_up = TOPIC._replace(fence=7)
    leader = LateLeader(given_up, applied=given_up, late=1)
    assert promote(leader, monkeypatch) == ["promoting.7.lifted", "closing.7.lifted", "promoted.7.lifted"]
    leader = LateLeader(leader.states[1], applied=given_up, late=1)
    assert promote(leader, monkeypatch)[:2] == ["mirroring.7", "promoting.7.lifted"]


def test_a_promotion_without_a_fence_lifts_the_one_of_an_interrupted_promotion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command was killed while it waited for the source: its request may be under way."""
    fencing = TOPIC._replace(state=MirrorState.FENCING, fence=7)
    leader = LateLeader(fencing, applied=fencing, late=1)
    assert promote(leader, monkeypatch) == [
        *("mirroring.7", "promoting.7.lifted", "closing.7.lifted", "promoted.7.lifted"),
    ]


class LateCoordinator(LateLeader):
    """A second broker coordinates groups. Its comparisons know the promotion only after `rounds` of them."""

    def __init__(self, *, rounds: int, restarts: bool = False, silent: int = 0) -> None:
        super().__init__(TOPIC, applied=TOPIC, late=0)
        self.looked = 0
        self._rounds = rounds
        self._restarts = restarts
        self._silent = silent

    def reports(self) -> dict[str, list[LinkReport]]:
        self.looked += 1
        knows = self.looked > self._rounds
        count = self.looked - 5 if self._restarts and self.looked > 5 else self.looked + 100
        return {"b:1": [LinkReport(name="west", rounds=count, promotions=["orders/promoting"] * knows)]}

    def silent(self) -> tuple[str, ...]:
        return ("c:1",) if self.looked <= self._silent else ()

    async def link_configs(self, cluster: object, link: str) -> dict[str, str]:
        return {"groups": "*"}


def test_a_promotion_waits_for_a_coordinator_with_old_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its comparisons complete without the offsets that are in transactions of the promoted topics."""
    leader = LateCoordinator(rounds=30)
    assert promote(leader, monkeypatch) == ["promoting", "closing", "promoted"]
    assert leader.looked > 30


def test_a_promotion_waits_for_brokers_that_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = LateCoordinator(rounds=0, silent=40)
    promote(leader, monkeypatch)
    assert leader.looked > 40


def test_a_coordinator_that_restarts_counts_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = LateCoordinator(rounds=6, restarts=True)
    promote(leader, monkeypatch, wait_s=60)
    assert 6 < leader.looked < 50
