"""Where replicas go: apart from each other, and evenly."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.placement import Load, Placer, check_assignment, may_receive
from penstock.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from tests.amounts import amount
from tests.metadata.sites import Site, cluster, create, sites
from tests.metadata.stage import Stage


def ups(where: list[Site]) -> st.SearchStrategy[set[int]]:
    """Which brokers are up: one at least."""
    return st.sets(st.integers(1, len(where)), min_size=1)


@settings(max_examples=amount(100), deadline=None)
@given(sites, st.integers(1, 12), st.data())
def test_only_brokers_that_are_up_lead_and_are_in_sync(
    where: list[Site], partitions: int, data: st.DataObject
) -> None:
    up = data.draw(ups(where))
    image = cluster(where, set(range(1, len(where) + 1)) - up)
    create(image, "t", partitions, data.draw(st.integers(1, len(where))))
    for partition in image.partitions:
        assert partition.leader == partition.replicas[0]
        assert partition.isr == [node for node in partition.replicas if node in up]
    leaders = Counter(dict.fromkeys(up, 0)) + Counter(p.leader for p in image.partitions)
    assert set(leaders) <= up
    assert max(leaders.values()) - min(leaders[node] for node in up) <= 1


@settings(max_examples=amount(50), deadline=None)
@given(st.integers(1, 7), st.data())
def test_a_fenced_broker_gets_replicas_that_active_brokers_cannot_hold(
    brokers: int, data: st.DataObject
) -> None:
    where = [("zone", f"host-{node}") for node in range(brokers)]
    up = data.draw(ups(where))
    factor = data.draw(st.integers(1, brokers))
    for nodes in create(cluster(where, set(range(1, brokers + 1)) - up), "t", 5, factor):
        assert len(up.intersection(nodes)) == min(factor, len(up))
        assert up.issuperset(nodes[: len(up)]), "they come last"


def test_a_zone_of_its_own_counts_for_more_than_being_up() -> None:
    """As in Kafka: the broker comes back, the replica stays where it is."""
    image = cluster([("A", "1"), ("A", "2"), ("B", "3")], fenced=[3])
    assert all(3 in nodes for nodes in create(image, "t", 6, 2))


def test_a_topic_needs_an_active_broker_as_leader() -> None:
    with pytest.raises(InvalidReplicationFactor, match="would have no leader"):
        create(cluster([("", "1"), ("", "2")], fenced=[1, 2]), "t", 1, 1)


@settings(max_examples=amount(100), deadline=None)
@given(sites, st.integers(1, 12), st.data())
def test_replicas_share_a_host_or_a_zone_only_where_there_is_no_other(
    where: list[Site], partitions: int, data: st.DataObject
) -> None:
    """Brokers that are down get replicas like others: a placement lasts for years."""
    down = set(range(1, len(where) + 1)) - data.draw(ups(where))
    factor = data.draw(st.integers(1, len(where)))
    for nodes in create(cluster(where, down), "t", partitions, factor):
        assert len(set(nodes)) == factor
        hosts = {where[node - 1][1] for node in nodes}
        zones = {where[node - 1][0] for node in nodes}
        assert len(hosts) == min(factor, len({host for _, host in where}))
        assert len(zones) == min(factor, len({zone for zone, _ in where}))


@settings(max_examples=amount(50), deadline=None)
@given(st.integers(1, 7), st.integers(1, 40), st.data())
def test_leaders_are_spread_evenly_and_replicas_nearly_so(
    brokers: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, min(3, brokers)))
    placed = create(cluster([("", str(n)) for n in range(brokers)]), "t", partitions, factor)

    leaders = Counter(dict.fromkeys(range(1, brokers + 1), 0))
    replicas = leaders.copy()
    for nodes in placed:
        leaders[nodes[0]] += 1
        replicas.update(nodes)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert max(replicas.values()) - min(replicas.values()) <= 2


def test_many_small_topics_are_as_even_as_one_large() -> None:
    image = cluster([("", str(n)) for n in range(4)])
    for number in range(40):
        create(image, f"t{number}", 1, 2)
    leaders = Counter(p.replicas[0] for p in image.partitions)
    held = Counter(node for p in image.partitions for node in p.replicas)
    assert set(leaders.values()) == {10}
    assert max(held.values()) - min(held.values()) <= 2


def test_a_topic_is_spread_even_where_one_broker_is_emptier_than_the_others() -> None:
    image = cluster([("", str(n)) for n in range(2)])
    create(image, "old", 50, 1)
    image.apply(RegisterBrokerRecord(broker_id=3, fenced=False), 999)
    assert Counter(nodes[0] for nodes in create(image, "new", 6, 1)) == {1: 2, 2: 2, 3: 2}


def test_the_pairs_of_brokers_that_share_partitions_vary() -> None:
    """So that the load of a broker that is lost goes to all others, not to one."""
    placed = create(cluster([("", str(n)) for n in range(5)]), "t", 100, 2)
    pairs = Counter(tuple(sorted(nodes)) for nodes in placed)
    assert set(pairs) == set(combinations(range(1, 6), 2))


def test_every_controller_places_alike() -> None:
    where = [("A", "1"), ("A", "2"), ("B", "3")]
    images = [cluster(where), cluster(where)]
    assert create(images[0], "t", 20, 2) == create(images[1], "t", 20, 2)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (BrokerRegistrationChangeRecord(broker_id=1, fenced=1), True),
        (BrokerRegistrationChangeRecord(broker_id=1, in_controlled_shutdown=1), False),
        (BrokerRegistrationChangeRecord(broker_id=1, in_controlled_shutdown=1, fenced=1), True),
        (
            BrokerRegistrationChangeRecord(broker_id=1, log_dirs=[b"d" * 16], cordoned_log_dirs=[b"d" * 16]),
            False,
        ),
    ],
    ids=["fenced", "shutting down", "shut down", "cordoned"],
)
def test_nothing_moves_to_brokers_that_are_not_there_but_those_that_come_back_count(
    change: BrokerRegistrationChangeRecord, counts: bool
) -> None:
    image = cluster([("", "1"), ("", "2")])
    assert may_receive(image.brokers[1])
    image.apply(change, 9)
    assert not may_receive(image.brokers[1])
    placer = Placer(Load(image), TopicId(bytes(16)))
    assert placer.place(0, 1) == [2]
    if counts:
        assert placer.place(1, 2) == [2, 1]
    else:
        with pytest.raises(InvalidReplicationFactor, match=r"only 1 broker\(s\)"):
            placer.place(1, 2)


def test_excluded_brokers_receive_nothing() -> None:
    image = cluster([("", "1"), ("", "2"), ("", "3")])
    placer = Placer(Load(image, excluded={2, 9}), TopicId(bytes(16)))
    assert {node for index in range(6) for node in placer.place(index, 2)} == {1, 3}
    with pytest.raises(InvalidReplicationFactor, match=r"only 2 .*penstock.balance.exclude.brokers: 2\)"):
        placer.place(6, 3)
    with pytest.raises(InvalidReplicationFactor, match=r"No broker is up .*exclude.brokers: 1, 2, 3\)"):
        Placer(Load(image, excluded={1, 2, 3}), TopicId(bytes(16))).place(0, 1)


def test_brokers_name_the_machine_that_they_run_on() -> None:
    """`penstock.machine` goes before the address, which several machines may share, or several be of one."""
    image = cluster([("", "balancer")] * 4)
    for node, broker in image.brokers.items():
        broker.machine = f"machine-{node % 2}"
    for nodes in create(image, "t", 12, 2):
        assert {node % 2 for node in nodes} == {0, 1}


def test_replicas_never_share_a_machine_that_has_a_name() -> None:
    """Three replicas on one machine would look safe. Brokers that share only an address may hold them."""
    image = cluster([("", "host")] * 4)
    assert all(len(set(nodes)) == 3 for nodes in create(image, "unnamed", 4, 3))
    for node, broker in image.brokers.items():
        broker.machine = f"machine-{node % 2}"
    with pytest.raises(InvalidReplicationFactor, match=r"different machines \(penstock.machine\).*only 2"):
        create(image, "t", 1, 3)
    assert "t" not in image.topics


@pytest.mark.parametrize(
    ("nodes", "factor", "text"),
    [
        ([], None, "an empty replica list."),
        ([1, 9], None, "broker 9, but no such broker is registered."),
        ([2, 2], None, "the broker 2 more than once."),
        (
            [1],
            2,
            "a partition with 1 replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s).",
        ),
    ],
)
def test_refusals_have_the_texts_of_kafka(nodes: list[int], factor: int | None, text: str) -> None:
    """People and scripts search for them."""
    with pytest.raises(InvalidReplicaAssignment) as refused:
        check_assignment(Stage(2).image, nodes, factor)
    assert str(refused.value) == f"The manual partition assignment includes {text}"
