"""Nodes, zones and networks of a cluster on one machine."""

from __future__ import annotations

from itertools import pairwise

from lab.kubernetes.layout import NODES, Node, cable, network_words


def test_three_zones_have_nodes_and_one_zone_has_two() -> None:
    zones = [node.zone for node in NODES]
    assert sorted(set(zones)) == ["zone-a", "zone-b", "zone-c"]
    assert zones.count("zone-a") == 2


def test_nodes_have_addresses_and_pod_ranges_of_their_own() -> None:
    assert len({node.address for node in NODES}) == len({node.pods for node in NODES}) == len(NODES)


def test_each_node_has_a_route_to_the_pods_of_every_other_node() -> None:
    words = list(network_words(NODES))
    for node in NODES:
        routes = [each for each in words if each[:3] == ("ip", "-n", node.name) and "route" in each]
        reached = {each[5] for each in routes}
        assert reached == {"default", *(other.pods for other in NODES if other is not node)}


def test_a_namespace_exists_before_a_cable_ends_in_it() -> None:
    words = list(network_words([Node(1, "zone-a")]))
    added = words.index(("ip", "netns", "add", "node-1"))
    (plugged,) = (
        at for at, each in enumerate(words) if each[:4] == ("ip", "link", "add", cable(Node(1, "a")))
    )
    assert added < plugged
    assert all(words.index(first) < words.index(second) for first, second in pairwise(words))
