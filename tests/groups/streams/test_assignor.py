"""The sticky assignor of streams groups: complete, even, sticky, and standby tasks on other processes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.groups.streams.assignor import TaskMember, assign_tasks
from penstock.groups.streams.tasks import NO_TASKS, TasksByRole
from penstock.groups.streams.topology import ConfiguredSubtopology, InternalTopic
from penstock.model.steps import at_once
from tests.amounts import amount

Targets = dict[str, TasksByRole]


def topology(stateless: int = 0, stateful: int = 0) -> dict[str, ConfiguredSubtopology]:
    found = {}
    if stateless:
        found["0"] = ConfiguredSubtopology(stateless, ("a",), (), (), ())
    if stateful:
        changelog = InternalTopic("c", stateful, 0, {})
        found["1"] = ConfiguredSubtopology(stateful, ("b",), (), (), (changelog,))
    return found


def assign(
    processes: dict[str, str],
    tasks: dict[str, ConfiguredSubtopology],
    before: Targets | None = None,
    standbys: int = 0,
) -> Targets:
    """The targets of members, by their processes."""
    known = before or {}
    members = {
        member: TaskMember(process, known.get(member, NO_TASKS)) for member, process in processes.items()
    }
    targets = at_once(assign_tasks(members, tasks, standbys))
    check(processes, tasks, targets, standbys)
    return targets


def check(
    processes: dict[str, str], tasks: dict[str, ConfiguredSubtopology], targets: Targets, standbys: int
) -> None:
    active = Counter(
        (name, index) for t in targets.values() for name, indexes in t.active.items() for index in indexes
    )
    assert active == Counter({(name, i): 1 for name, each in tasks.items() for i in range(each.tasks)})
    standby = Counter(
        (name, index) for t in targets.values() for name, indexes in t.standby.items() for index in indexes
    )
    copies = min(standbys, len(set(processes.values())) - 1)
    wanted = {(name, i): copies for name, e in tasks.items() if e.is_stateful for i in range(e.tasks)}
    assert standby == Counter({task: count for task, count in wanted.items() if count})
    for process in set(processes.values()):
        mine = [targets[m] for m, p in processes.items() if p == process]
        has = [
            (name, index)
            for target in mine
            for role in (target.active, target.standby)
            for name, indexes in role.items()
            for index in indexes
        ]
        assert len(has) == len(set(has)), "a process has a task in one role only"


def sizes(targets: Targets) -> list[int]:
    return sorted(sum(map(len, target.active.values())) for target in targets.values())


def moved(before: Targets, after: Targets) -> int:
    """Active tasks that have left a member that is still there."""
    return sum(
        len(indexes - after[member].active.get(name, set()))
        for member, target in before.items()
        if member in after
        for name, indexes in target.active.items()
    )


@pytest.mark.parametrize(("members", "tasks"), [(1, 5), (3, 3), (3, 10), (10, 3), (7, 20)])
def test_the_tasks_are_divided_evenly(members: int, tasks: int) -> None:
    targets = assign({f"m{n}": f"p{n}" for n in range(members)}, topology(stateless=tasks))
    assert sizes(targets)[-1] - sizes(targets)[0] <= 1


def test_a_process_with_more_threads_gets_more_tasks() -> None:
    targets = assign({"a1": "a", "a2": "a", "a3": "a", "b1": "b"}, topology(stateless=8))
    assert sizes(targets) == [2, 2, 2, 2]


def test_nothing_moves_without_a_reason() -> None:
    processes, tasks = {f"m{n}": f"p{n}" for n in range(3)}, topology(6, 6)
    before = assign(processes, tasks, standbys=1)
    assert assign(processes, tasks, before, standbys=1) == before


def test_a_new_member_gets_its_share_and_no_other_task_moves() -> None:
    tasks = topology(stateless=9)
    before = assign({"m0": "p0", "m1": "p1"}, tasks)
    after = assign({"m0": "p0", "m1": "p1", "m2": "p2"}, tasks, before)
    assert sizes(after) == [3, 3, 3] and moved(before, after) == 3


def test_the_process_with_the_state_takes_over() -> None:
    processes, tasks = {f"m{n}": f"p{n}" for n in range(3)}, topology(stateful=3)
    before = assign(processes, tasks, standbys=1)
    (lost,) = before["m2"].active["1"]
    (heir,) = [m for m in ("m0", "m1") if lost in before[m].standby.get("1", ())]
    after = assign({"m0": "p0", "m1": "p1"}, tasks, before, standbys=1)
    assert lost in after[heir].active["1"]


def test_two_standby_tasks() -> None:
    assign({f"m{n}": f"p{n}" for n in range(4)}, topology(3, 8), standbys=2)


def test_a_task_that_was_removed_is_forgotten() -> None:
    before = assign({"m": "p"}, topology(stateless=5))
    assert assign({"m": "p"}, topology(stateless=2), before)["m"].active == {"0": {0, 1}}


def test_random_changes() -> None:
    rng = Random(1)
    before: Targets = {}
    tasks = topology(7, 9)
    for _ in range(amount(200)):
        count = rng.randrange(1, 9)
        processes = {f"m{n}": f"p{n % rng.randrange(1, 6)}" for n in rng.sample(range(12), count)}
        before = assign(processes, tasks, before, standbys=rng.randrange(3))


def test_large_groups_take_many_steps() -> None:
    members = {f"m{n}": TaskMember(f"p{n % 50}", NO_TASKS) for n in range(500)}
    steps = sum(1 for _ in assign_tasks(members, topology(2000, 2000), 2))
    assert steps > 40
