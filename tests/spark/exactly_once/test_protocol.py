"""The rules of the sink, and runs in which attempts and drivers die in every order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.exactly_once.decisions import CLOSED, Decision, Prepared
from penstock.spark.exactly_once.names import AttemptName, Names
from penstock.spark.exactly_once.protocol import Plan, is_decided, plan_abort, plan_commit, strays

NAMES = Names("p")
QUERY = "6f1c1b52"


def prepared(batch: int, partition: int, attempt: str = "a", run: str = "1") -> Prepared:
    return Prepared(NAMES.attempt(AttemptName(QUERY, run, batch, partition, attempt)), 1, 0, 1)


def test_the_first_commit_of_a_batch_decides() -> None:
    chosen = [prepared(4, 0), prepared(4, 1)]
    plan = plan_commit(None, QUERY, 4, chosen, 99)
    assert plan == Plan(Decision(QUERY, 4, tuple(chosen), 99), commit=tuple(chosen))


def test_a_decided_batch_is_finished_and_not_decided_again() -> None:
    decision = Decision(QUERY, 4, (prepared(4, 0),))
    again = prepared(4, 0, "b")
    assert plan_commit(decision, QUERY, 4, [again], 99) == Plan(
        commit=decision.transactions, abort=(again,), is_resumed=True
    )
    assert plan_abort(decision, 4, [*decision.transactions, again]) == Plan(
        commit=decision.transactions, abort=(again,), is_resumed=True
    )


def test_a_batch_before_the_last_decision_is_written() -> None:
    """The checkpoint was rolled back, or the query is closed."""
    for last in (Decision(QUERY, 5, (prepared(5, 0),)), Decision(QUERY, CLOSED, ())):
        assert is_decided(last, 4)
        assert plan_commit(last, QUERY, 4, [prepared(4, 0)], 0) == Plan(
            abort=(prepared(4, 0),), is_resumed=True
        )


def test_a_batch_without_rows_is_not_decided() -> None:
    assert plan_commit(None, QUERY, 4, [], 0) == Plan()


def test_strays_are_attempts_that_the_decision_does_not_name() -> None:
    chosen, lost, earlier, later = prepared(4, 0), prepared(4, 0, "b"), prepared(3, 1), prepared(5, 0)
    theirs = NAMES.attempt(AttemptName("other", "1", 4, 0, "a"))
    listed = [each.transactional_id for each in (chosen, lost, earlier, later)]
    listed += [theirs, NAMES.driver(QUERY), "else"]
    found = strays(NAMES, listed, QUERY, 4, Decision(QUERY, 4, (chosen,)), ())
    assert found == sorted([lost.transactional_id, earlier.transactional_id])


def test_attempts_of_other_runs_may_count_until_a_decision() -> None:
    own, theirs, earlier = prepared(4, 0), prepared(4, 0, run="2"), prepared(3, 0)
    listed = [each.transactional_id for each in (own, theirs, earlier)]
    assert strays(NAMES, listed, QUERY, 4, None, {"1"}) == [own.transactional_id]
    assert strays(NAMES, listed, QUERY, 4, Decision(QUERY, 3, ()), {"1"}) == [own.transactional_id]
    assert strays(NAMES, listed, QUERY, 4, Decision(QUERY, 4, ()), {"1"}) == sorted(listed)


@dataclass
class World:
    """A coordinator and a topic of decisions as they should be, and a query that is killed at will."""

    rng: random.Random
    #: by transactional id: open, committed or aborted; and its row
    states: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    last: Decision | None = None
    attempts: int = 0

    def dies(self) -> bool:
        return self.rng.random() < 0.15

    def attempt(self, batch: int, partition: int) -> Prepared | None:
        """One attempt to its end; None if it wrote nothing. `Killed` if it dies, open or not."""
        if self.dies():
            raise Killed
        if is_decided(self.last, batch):
            return None
        self.attempts += 1
        made = prepared(batch, partition, f"{self.attempts:x}")
        self.states[made.transactional_id] = "open"
        self.rows[made.transactional_id] = batch, partition
        return made

    def end(self, transactional_id: str, state: str) -> None:
        before = self.states[transactional_id]
        assert before in ("open", state), f"{transactional_id} was {before} and becomes {state}"
        self.states[transactional_id] = state

    def run_batch(self, batch: int) -> None:
        reports = []
        for partition in range(3):
            for _ in range(self.rng.choice((1, 1, 2))):
                try:
                    report = self.attempt(batch, partition)
                except Killed:
                    report = self.attempt(batch, partition)
            reports.append(report)
        chosen = [each for each in reports if each is not None]
        if self.rng.random() < 0.2:
            plan = plan_abort(self.last, batch, chosen)
            self.carry_out(plan, batch)
            raise Killed
        self.carry_out(plan_commit(self.last, QUERY, batch, chosen, 0), batch)

    def carry_out(self, plan: Plan, batch: int) -> None:
        if self.dies():
            raise Killed
        if plan.decision is not None:
            self.last = plan.decision
        for each in plan.commit:
            if self.dies():
                raise Killed
            self.end(each.transactional_id, "committed")
        for each in plan.abort:
            if self.dies():
                raise Killed
            self.end(each.transactional_id, "aborted")
        for stray in strays(NAMES, self.states, QUERY, batch, self.last, {"1"}):
            if self.states[stray] == "open":
                self.end(stray, "aborted")


class Killed(Exception):
    """A part of the query has died; Spark starts it again."""


@given(st.integers(0, 2**32))
def test_each_batch_is_committed_once_after_any_kills(seed: int) -> None:
    world = World(random.Random(seed))
    for batch in range(4):
        for _ in range(500):
            try:
                world.run_batch(batch)
                break
            except Killed:
                continue
        committed = sorted(world.rows[each] for each, state in world.states.items() if state == "committed")
        expected = [(done, partition) for done in range(batch + 1) for partition in range(3)]
        assert committed == expected, f"seed {seed}"
        assert "open" not in world.states.values(), f"seed {seed}"
