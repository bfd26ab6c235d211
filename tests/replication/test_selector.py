"""Reading from the nearest replica (KIP-392)."""

from __future__ import annotations

from penstock.replication.leader import LeaderState
from penstock.replication.selector import preferred_read_replica
from tests.replication.leaders import Cluster, Registered


def nearest(leader: LeaderState, racks: dict[int, str], offset: int = 8, rack: str = "b") -> int | None:
    return preferred_read_replica(leader, rack, offset, racks.get)


def led(isr: tuple[int, ...] = (1, 2, 3)) -> LeaderState:
    cluster = Cluster()
    cluster.brokers[3] = Registered(103, fenced=3 not in isr)
    leader = cluster.leader(isr=isr)
    leader.follower_fetched(2, 102, 9, 5, 0)
    leader.follower_fetched(3, 103, 10, 5, 0)
    return leader


def test_the_most_caught_up_replica_of_the_consumers_rack() -> None:
    assert nearest(led(), {1: "a", 2: "b", 3: "b"}) == 3
    assert nearest(led(), {1: "a", 2: "b", 3: "c"}) == 2


def test_the_leader_is_selected_if_it_is_near_or_no_replica_is() -> None:
    assert nearest(led(), {1: "b", 2: "b", 3: "b"}) is None
    assert nearest(led(), {1: "a", 2: "a", 3: "a"}) is None
    assert nearest(led(), {1: "a", 2: "b", 3: "b"}, rack="") is None


def test_a_replica_out_of_sync_is_not_chosen() -> None:
    assert nearest(led(isr=(1, 2)), {1: "a", 2: "b", 3: "b"}) == 2


def test_a_replica_that_does_not_have_the_offset_is_not_chosen() -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    assert nearest(led(), racks, offset=10) is None
    assert nearest(led(), racks, offset=4) is None


def test_a_replica_that_has_not_fetched_from_this_leader_is_not_chosen() -> None:
    assert nearest(Cluster().leader(), {1: "a", 2: "b"}) is None
