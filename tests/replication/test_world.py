"""Nothing acknowledged is lost and nothing read changes, whatever happens within the promised faults."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.replication.follower import FetchPosition, FollowerState, Step
from penstock.replication.leader import IsrProposal, LeaderState
from penstock.replication.progress import FollowerProgress
from tests.amounts import amount, known_first
from tests.replication.leaders import MAX_LAG_MS
from tests.replication.world import REAL_RULES, BrokenPromise, Rules, World


class Replication(RuleBasedStateMachine):
    """Hypothesis chooses the events, and makes a failure short."""

    @initialize(brokers=st.integers(3, 5))
    def start(self, brokers: int) -> None:
        self.world = World(brokers)
        self.size = brokers

    @rule(node=st.integers(0, 4), acks_all=st.booleans())
    def produce(self, node: int, acks_all: bool) -> None:
        self.world.produce(node % self.size, acks_all)

    @rule(node=st.integers(0, 4))
    def fetch(self, node: int) -> None:
        self.world.fetch(node % self.size)

    @rule(index=st.integers(0, 9), times=st.integers(1, 4))
    def deliver(self, index: int, times: int) -> None:
        for _ in range(times):
            self.world.deliver(index)

    @rule(index=st.integers(0, 9))
    def lose(self, index: int) -> None:
        self.world.lose(index)

    @rule(node=st.integers(0, 4))
    def learn(self, node: int) -> None:
        self.world.learn(node % self.size)

    @rule(node=st.integers(0, 4), ms=st.integers(0, MAX_LAG_MS * 2))
    def tick(self, node: int, ms: int) -> None:
        self.world.tick(node % self.size, ms)

    @rule(node=st.integers(0, 4))
    def retry_proposal(self, node: int) -> None:
        self.world.retry_proposal(node % self.size)

    @rule(node=st.integers(0, 4))
    def recover_high_watermark(self, node: int) -> None:
        self.world.recover_high_watermark(node % self.size)

    @rule(node=st.integers(0, 4))
    def sync(self, node: int) -> None:
        self.world.sync(node % self.size)

    @rule(node=st.integers(0, 4), lost=st.integers(0, 5))
    def crash(self, node: int, lost: int) -> None:
        self.world.crash(node % self.size, lost)

    @rule(node=st.integers(0, 4))
    def restart(self, node: int) -> None:
        self.world.restart(node % self.size)

    @rule(node=st.integers(0, 4))
    def fence(self, node: int) -> None:
        self.world.fence(node % self.size)

    @rule(node=st.integers(0, 4))
    def unfence(self, node: int) -> None:
        self.world.unfence(node % self.size)

    @invariant()
    def promises_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.heal()


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=amount(60), stateful_step_count=60, deadline=None)


def play(seed: int, rules: Rules, steps: int = 600) -> World:
    """The same events by a seed, weighted towards what a busy cluster does."""
    rng = random.Random(seed)
    brokers = rng.choice((3, 3, 3, 4, 5))
    in_order = rng.random()  # what is not delivered first stays behind, for long
    world = World(brokers, rules)
    events: list[Callable[[int], None]] = [
        *[lambda n: world.produce(world.controller.partition.leader, rng.random() < 0.7)] * 6,
        lambda n: world.produce(n, True),
        *[world.fetch] * 40,
        *[lambda n: world.deliver(0 if rng.random() < in_order else -1)] * 100,
        *[world.learn] * 20,
        *[world.unfence] * 10,
        *[world.restart] * 10,
        *[world.retry_proposal] * 2,
        *[world.sync] * 2,
        *[lambda n: world.tick(n, rng.randrange(MAX_LAG_MS))] * 2,
        *[lambda n: world.crash(n, rng.randrange(6))] * 2,
        lambda n: world.lose(rng.randrange(100)),
        world.fence,
    ]
    for _ in range(steps):
        rng.choice(events)(rng.randrange(brokers))
        world.recover_high_watermark(world.controller.partition.leader)
        world.check()
    return world


def test_promises_hold_for_many_seeds_and_there_was_something_to_lose() -> None:
    acknowledged = leaders = 0
    for seed in range(amount(150)):
        world = play(seed, REAL_RULES)
        acknowledged += len(world.acknowledged)
        leaders += world.controller.partition.leader_epoch
        world.heal()
    assert acknowledged > amount(500)
    assert leaders > amount(150)


# -- each guard removed, one at a time


class NoEpochStart(LeaderState):
    def _has_reached(self, progress: FollowerProgress) -> bool:
        return progress.end_offset >= self.high_watermark


class NoBrokerEpoch(LeaderState):
    def _check_incarnation(self, replica: int, broker_epoch: int) -> None:
        """Every fetch is believed."""

    def _is_eligible(self, replica: int, progress: FollowerProgress) -> bool:
        return progress.broker_epoch is not None

    def _broker_epoch(self, replica: int) -> int:
        return -1


class NoMaximalIsr(LeaderState):
    """Only the committed ISR counts; waiting for a joining replica would hide it most of the time."""

    def maximal_isr(self) -> frozenset[int]:
        return self.isr

    def _is_about_to_join(self, replica: int, progress: FollowerProgress, now_ms: int) -> bool:
        return False


class NoMinIsr(LeaderState):
    def _advance(self, now_ms: int) -> None:
        wanted, self.min_isr = self.min_isr, 0
        super()._advance(now_ms)
        self.min_isr = wanted


class RemovedAtOnce(LeaderState):
    def tick(self, now_ms: int) -> IsrProposal | None:
        proposal = super().tick(now_ms)
        if proposal is not None:
            self.isr = frozenset(member.broker for member in proposal.isr)
            self._advance(now_ms)
        return proposal


class CutToHighWatermark(FollowerState):
    """As before KIP-101."""

    def _truncate(self, offset: int, now_ms: int) -> Step:
        return super()._truncate(min(offset, self._log.high_watermark), now_ms)


class AnyAnswerCounts(FollowerState):
    def _is_stale(self, sent: FetchPosition) -> bool:
        return False


@pytest.mark.parametrize(
    ("mutant", "found_by"),
    [
        pytest.param(Rules(leader=NoEpochStart), 68, id="epoch-start"),
        pytest.param(Rules(leader=NoBrokerEpoch), 161, id="broker-epoch"),
        pytest.param(Rules(leader=NoMaximalIsr), 12, id="maximal-isr"),
        pytest.param(Rules(leader=NoMinIsr), 13, id="min-isr"),
        pytest.param(Rules(leader=RemovedAtOnce), 140, id="removed-counts-until-agreed"),
        pytest.param(Rules(diverging=lambda *_: None), 6, id="truncation-by-epoch"),
        pytest.param(Rules(follower=CutToHighWatermark), 20, id="no-cut-to-high-watermark"),
        pytest.param(Rules(follower=AnyAnswerCounts), 0, id="stale-answers"),
        pytest.param(Rules(reported_by_all=False), 253, id="reported-by-all"),
    ],
)
def test_a_removed_guard_is_found(mutant: Rules, found_by: int) -> None:
    """`found_by`: the seed that found it when this was written."""
    for seed in known_first(range(1000), found_by):
        try:
            play(seed, mutant)
        except BrokenPromise:
            return
    pytest.fail("no seed shows what this guard is for")
