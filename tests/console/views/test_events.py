"""What changed between two samples."""

from __future__ import annotations

from penstock.console.views.events import changes
from penstock.console.views.samples import GroupSample
from tests.console.samples import a_sample


def texts(before: object, after: object) -> list[str]:
    return [event.text for event in changes(before, after)]  # type: ignore[arg-type]


def test_nothing_changed() -> None:
    assert texts(a_sample(), a_sample(2.0)) == []


def test_a_broker_leaves_and_partitions_follow() -> None:
    assert texts(a_sample(), a_sample(2.0, brokers=(2,), controller=2, leader=2, isr=(2,))) == [
        "Broker 1 left the cluster",
        "Controller moved from node 1 to node 2",
        "t-0: leader 2 (was 1)",
        "t-0: in-sync replicas 2 (were 1,2)",
    ]
    assert texts(a_sample(), a_sample(leader=-1, isr=(1,))) == ["t-0: no leader (was 1)"]
    assert texts(a_sample(isr=(1,)), a_sample()) == ["t-0: in-sync replicas 1,2 (were 1)"]


def test_topics_and_groups_come_and_go() -> None:
    one = GroupSample("g", "Empty", "classic", "consumer", 1, {})
    before = a_sample(topics=("a", "b"), groups=[one])
    after = a_sample(topics=("b", "c"), groups=[one._replace(state="Stable"), one._replace(name="h")])
    assert texts(before, after) == [
        "Topic c was created",
        "Topic a was deleted",
        "Group h appeared",
        "Group g: Stable (was Empty)",
    ]


def test_many_changes_are_counted() -> None:
    many = tuple(f"t{n}" for n in range(20))
    found = texts(a_sample(topics=()), a_sample(topics=many))
    assert len(found) == 6
    assert found[-1] == "15 more topics were created"
