"""Rolls of a cluster that is a model: order, waiting, reasons, continuing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from penstock.rolling.driver import Roll, RollStopped
from penstock.rolling.observing import NotObserved
from penstock.rolling.progress import Progress, decoded, encoded
from penstock.rolling.state import NO_EPOCH, ClusterState
from tests.rolling.states import partition, whole

RACKS = {1: "a", 2: "b", 3: "c"}


class Model:
    """A cluster whose restarted brokers are out of sync for some looks."""

    def __init__(self, *, slow: int = 2, epochs: bool = True) -> None:
        self.state = whole(RACKS, partitions=[partition("t", [1, 2, 3]), partition("u", [2, 3, 1])])
        if not epochs:
            self.state = self.state._replace(
                brokers={id_: b._replace(epoch=NO_EPOCH) for id_, b in self.state.brokers.items()}
            )
        self.restarted: list[int] = []
        self.elected: list[int] = []
        self.said: list[str] = []
        self.saved: list[str] = []
        self.failing: dict[int, str] = {}
        self._slow = slow
        self._out: dict[int, int] = {}
        self._epoch = 100

    async def describe(self) -> ClusterState:
        if any(left == self._slow for left in self._out.values()):
            self._out = {id_: left - 1 for id_, left in self._out.items()}
            raise NotObserved("no broker answers Metadata")
        out = {id_ for id_, left in self._out.items() if left > 0}
        self._out = {id_: left - 1 for id_, left in self._out.items() if left > 0}
        return self.state._replace(
            partitions=[
                each._replace(isr=[id_ for id_ in each.isr if id_ not in out])
                for each in self.state.partitions
            ]
        )

    async def elect_preferred(self, broker: int, state: ClusterState) -> None:
        self.elected.append(broker)

    async def restart(self, broker: int) -> None:
        if broker in self.failing:
            raise RollStopped(self.failing[broker])
        self.restarted.append(broker)
        self._out[broker] = self._slow
        self._epoch += 1
        known = self.state.brokers[broker]
        if known.epoch != NO_EPOCH:
            known = known._replace(epoch=self._epoch)
        self.state = self.state._replace(brokers={**self.state.brokers, broker: known})

    def roll(
        self, progress: Progress | None = None, *, timeout_s: float = 60.0, awaits_process: bool = False
    ) -> Progress:
        return asyncio.run(
            Roll(
                self,
                self.restart,
                timeout_s=timeout_s,
                say=self.said.append,
                save=lambda now: self.saved.append(encoded(now)),
                awaits_process=awaits_process,
            ).run(progress or Progress("restart"))
        )

    @property
    def last_saved(self) -> Progress:
        progress = decoded(self.saved[-1])
        assert progress is not None
        return progress


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rolling.driver._PAUSE_S", 0.0)


def test_each_broker_is_restarted_once_the_one_before_is_in_sync() -> None:
    model = Model()
    done = model.roll()
    assert model.restarted == [2, 3, 1] == list(done.done), "the controller is the last"
    assert model.elected == [2, 3, 1]
    assert model.said[:2] == [
        "broker 2: restarting; 1 partitions get other leaders first",
        "broker 2: back; all replicas are in sync",
    ]
    for before, after in pairwise(map(decoded, model.saved)):
        assert before is not None and after is not None
        assert len(after.done) - len(before.done) in (0, 1)


def test_a_roll_stops_with_the_reason_and_is_continued() -> None:
    model = Model()
    model.failing = {3: "`restart 3` failed with exit code 1: no such unit"}
    with pytest.raises(RollStopped, match="no such unit"):
        model.roll()
    assert model.restarted == [2] and model.last_saved.restarting == 3
    model.failing = {}
    assert model.roll(model.last_saved).done == (2, 3, 1)
    assert model.restarted == [2, 3, 1], "broker 2 was not restarted again"


def test_a_broker_that_does_not_come_back_stops_the_roll() -> None:
    model = Model(slow=1 << 30)
    with pytest.raises(
        RollStopped, match=r"broker 2 was restarted, and the cluster is not whole .* t-0, u-0"
    ):
        model.roll(timeout_s=0.05)
    assert model.restarted == [2] and model.last_saved.awaited == 2
    model._out.clear()
    model._slow = 2
    assert model.roll(model.last_saved).done == (2, 3, 1)
    assert model.restarted == [2, 3, 1], "broker 2 was only awaited"


@pytest.mark.parametrize(
    "break_",
    [
        lambda s: s._replace(controller=None),
        lambda s: s._replace(voters=[v._replace(is_current=False) for v in s.voters]),
    ],
)
def test_a_cluster_that_is_not_whole_is_not_touched(break_: Callable[[ClusterState], ClusterState]) -> None:
    model = Model()
    model.state = break_(model.state)
    with pytest.raises(RollStopped, match="the cluster is not whole after"):
        model.roll(timeout_s=0.05)
    assert model.restarted == []


def test_a_refusal_names_the_broker_and_the_reason() -> None:
    model = Model()
    model.state = model.state._replace(partitions=[partition("t", [2], min_isr=1)])
    with pytest.raises(RollStopped, match="broker 2 is not restarted: it has the only replica of t-0"):
        model.roll()
    assert model.restarted == []


def test_a_restart_that_did_not_happen_is_noticed() -> None:
    """A command may return before anything is restarted: the broker has its old registration."""
    model = Model()

    async def nothing(broker: int) -> None:
        model.restarted.append(broker)

    model.restart = nothing  # type: ignore[method-assign]
    with pytest.raises(RollStopped, match="broker 2 has not registered again"):
        model.roll(timeout_s=0.05)
    assert model.restarted == [2]


def test_brokers_without_epochs_are_only_restarted_by_a_hook_that_awaits_the_process() -> None:
    with pytest.raises(RollStopped, match=r"older than 0\.2\.0"):
        Model(epochs=False).roll()
    assert Model(epochs=False).roll(awaits_process=True).done == (2, 3, 1)
