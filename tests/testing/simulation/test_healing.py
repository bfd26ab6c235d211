"""Self-healing in the simulator: what its invariants notice, and courses in which they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.metadata.image import Origin
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.healing import HEALING, HealingInvariants, MoveView
from penstock.testing.simulation.scenario import Options, simulate

P = TopicPartition("t", 0)
WHOLE = MoveView((1, 2, 3), (), (), (1, 2, 3), Origin.REQUEST)
DEGRADED = WHOLE._replace(isr=(1, 2))
REBUILD = MoveView((1, 2, 4, 3), (4,), (3,), (1, 2), Origin.REBUILD)
UP = dict.fromkeys((1, 2, 3, 4), False)
GONE = UP | {3: True}


def watched(*gone: int) -> HealingInvariants:
    """Brokers that are gone since 0, with a delay of 10 s."""
    invariants = HealingInvariants(10.0, 1)
    invariants.image_changed({P: DEGRADED if gone else WHOLE}, UP | dict.fromkeys(gone, True), 0.0)
    return invariants


def test_a_rebuild_in_good_order() -> None:
    invariants = watched(3)
    invariants.image_changed({P: REBUILD}, GONE, 10.0)
    invariants.image_changed({P: MoveView((1, 2, 4), (), (), (1, 2, 4), Origin.REQUEST)}, GONE, 11.0)


def test_a_rebuild_that_is_cancelled_in_time() -> None:
    invariants = watched(3)
    invariants.image_changed({P: REBUILD}, GONE, 10.0)
    invariants.image_changed({P: REBUILD}, UP, 11.0)
    invariants.time_passed(12.0)
    invariants.image_changed({P: DEGRADED}, UP, 13.0)
    invariants.time_passed(100.0)


@pytest.mark.parametrize(
    ("moment", "fenced", "move", "name"),
    [
        (9.9, GONE, REBUILD, "rebuilt too soon"),
        (10.0, UP, REBUILD, "rebuilt too soon"),
        (10.0, GONE | {2: True, 4: True}, REBUILD, "rebuilt with too few brokers"),
        (10.0, GONE, REBUILD._replace(replicas=(1, 4, 2, 3), removing=(2, 3)), "rebuilt too soon"),
    ],
    ids=["early", "for nobody", "few brokers", "also of one that is up"],
)
def test_a_rebuild_that_must_not_begin(
    moment: float, fenced: dict[int, bool], move: MoveView, name: str
) -> None:
    invariants = watched(3)
    with pytest.raises(Violation, match=name):
        invariants.image_changed({P: move}, fenced, moment)


def test_a_copy_in_sync_is_not_given_up() -> None:
    """Also of a broker that is fenced by now: it was in sync when it was last seen."""
    invariants, more = watched(2, 3), {2: True, 3: True, 5: False}
    with pytest.raises(Violation, match="copy in sync given up"):
        invariants.image_changed(
            {P: MoveView((1, 4, 5, 2, 3), (4, 5), (2, 3), (1,), Origin.REBUILD)}, UP | more, 20.0
        )


@pytest.mark.parametrize(
    ("after", "name"),
    [
        (MoveView((1, 2, 4), (), (), (1, 2), Origin.REQUEST), "copy given up before"),
        (MoveView((1, 2), (), (), (1, 2), Origin.REQUEST), "number of replicas changed"),
    ],
)
def test_a_rebuild_that_ends_badly(after: MoveView, name: str) -> None:
    invariants = watched(3)
    invariants.image_changed({P: REBUILD}, GONE, 10.0)
    with pytest.raises(Violation, match=name):
        invariants.image_changed({P: after}, GONE, 11.0)


def test_a_rebuild_that_goes_on_after_the_return() -> None:
    invariants = watched(3)
    invariants.image_changed({P: REBUILD}, GONE, 10.0)
    invariants.image_changed({P: REBUILD}, UP, 11.0)
    with pytest.raises(Violation, match="rebuild not cancelled"):
        invariants.time_passed(20.0)


def test_an_operators_move_that_is_changed() -> None:
    invariants = watched(3)
    moved = MoveView((1, 2, 5, 3), (5,), (3,), (1, 2), Origin.REQUEST)
    invariants.image_changed({P: moved}, GONE, 1.0)
    with pytest.raises(Violation, match="operator's move changed"):
        invariants.image_changed({P: REBUILD}, GONE, 20.0)


def test_too_many_at_once() -> None:
    invariants, other = watched(3), TopicPartition("t", 1)
    invariants.image_changed({P: DEGRADED, other: DEGRADED}, GONE, 0.0)
    with pytest.raises(Violation, match="too many moves at once"):
        invariants.image_changed({P: REBUILD, other: REBUILD}, GONE, 10.0)


def test_a_restart_of_the_cluster_begins_the_time_anew() -> None:
    invariants = watched(3)
    invariants.cluster_restarted(8.0)
    with pytest.raises(Violation, match="rebuilt too soon"):
        invariants.image_changed({P: REBUILD}, GONE, 17.0)


def light(seed: int, course: str) -> Options:
    """A course with little load, which is cheap."""
    return replace(Options.draw(seed, 5).with_directed_fault(course), producers=1, consumers=1, members=0)


@pytest.mark.parametrize("course", ["gone_for_good", "back_in_time"])
def test_a_course_is_run_through_and_nothing_is_lost(course: str) -> None:
    """The others are for `make sim`."""
    assert course in HEALING
    outcome = simulate(1, light(1, course))
    assert outcome.violation is None, f"{outcome.violation}"
    assert outcome.acknowledged
