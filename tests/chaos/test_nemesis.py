from __future__ import annotations

from itertools import pairwise

from chaos.nemesis import KINDS, schedule


def test_a_seed_names_a_schedule() -> None:
    assert schedule(7, 600, range(1, 6), tuple(KINDS)) == schedule(7, 600, range(1, 6), tuple(KINDS))
    assert schedule(7, 600, range(1, 6), tuple(KINDS)) != schedule(8, 600, range(1, 6), tuple(KINDS))


def test_faults_follow_each_other_within_the_time_and_every_kind_happens() -> None:
    faults = schedule(1, 600, range(1, 4), tuple(KINDS))
    assert all(earlier.until_s < later.at_s for earlier, later in pairwise(faults))
    assert faults[-1].until_s <= 600
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {node for fault in faults for node in fault.nodes} == {1, 2, 3}


def test_only_the_requested_kinds() -> None:
    assert {fault.kind for fault in schedule(1, 100, range(1, 4), ("pause",))} == {"pause"}
