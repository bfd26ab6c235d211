"""Clients and topics of a drawing: problems first, found by name, bounded."""

from __future__ import annotations

import time
from typing import Any

from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap
from penstock.console.views.samples import GroupSample, Sample
from penstock.console.views.traffic import (
    PARTITIONS_MAX,
    Chosen,
    Writer,
    choose,
    partitions_to_ask,
    traffic_view,
)
from penstock.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.console.samples import a_sample


def group(name: str, topics: list[str], committed: int = 0, state: str = "Stable") -> GroupSample:
    return GroupSample(name, state, "consumer", "consumer", 1, {(topic, 0): committed for topic in topics})


def sampled(topics: list[str], groups: list[GroupSample], end: int = 10) -> Sample:
    return a_sample(topics=tuple(topics), groups=groups, ends={(topic, 0): end for topic in topics})


def no_rate(_: str) -> float | None:
    return None


def view(sample: Sample, chosen: Chosen, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"writers": [], "members": {}, "gaps": {}} | more
    return traffic_view(sample, no_rate, chosen, fields["writers"], fields["members"], fields["gaps"])


def test_topics_with_a_problem_lag_and_traffic_come_first() -> None:
    names = ["quiet", "busy", "lagging", "lost", "__internal"]
    sample = sampled(names, [group("g", ["lagging"], 3), group("done", ["busy"], 10)])
    partition = sample.partitions["lost", 0]
    sample.partitions["lost", 0] = partition._replace(leader=-1)
    chosen = choose(sample, {"busy": 9.0}.get, "")
    assert chosen.topics == ["lost", "lagging", "busy", "quiet"]
    assert choose(sample, no_rate, "", internal=True).topics_total == 5


def test_a_name_finds_topics_groups_and_their_neighbours() -> None:
    groups = [group("billing", ["orders"]), group("audit", ["orders", "logins"]), group("new", [])]
    sample = sampled(["orders", "logins", "other"], groups)
    by_topic = choose(sample, no_rate, "LOGIN")
    assert (by_topic.topics, [each.name for each in by_topic.groups]) == (["logins"], ["audit"])
    by_group = choose(sample, no_rate, "billing")
    assert by_group.topics == ["orders"]
    assert {each.name for each in by_group.groups} == {"billing", "audit"}
    # A group without a commit is found by its name, too.
    assert [each.name for each in choose(sample, no_rate, "new").groups] == ["new"]


def test_members_are_readers_before_they_commit() -> None:
    sample = sampled(["orders"], [group("billing", []), group("hidden", ["orders"], 4)])
    chosen = choose(sample, no_rate, "")
    member = {"client": "app", "host": "/10.0.0.1", "assignment": [{"topic": "orders", "partitions": [0]}]}
    shown = view(sample, chosen, members={"billing": [member], "hidden": Gap(REFUSED, "no right")})
    reads = {(each["group"], each["topic"]): each for each in shown["reads"]}
    assert reads["billing", "orders"]["assigned"] and reads["billing", "orders"]["lag"] is None
    assert (reads["hidden", "orders"]["lag"], reads["hidden", "orders"]["assigned"]) == (6, False)
    billing, hidden = (
        next(g for g in shown["groups"] if g["name"] == name) for name in ("billing", "hidden")
    )
    assert (billing["members"], billing["clients"]) == (1, [{"client": "app", "host": "/10.0.0.1"}])
    assert (hidden["members"], hidden["members_gap"]["state"]) == (None, "refused")


def test_producers_are_the_most_recent_ones() -> None:
    sample = sampled(["orders"], [])
    writers = [Writer(n, "tx" if n == 99 else None, "orders", n, False) for n in range(100)]
    shown = view(sample, choose(sample, no_rate, ""), writers=writers, gaps={"producers": Gap(UNKNOWN, "x")})
    assert (len(shown["producers"]), shown["producers_total"], len(shown["writes"])) == (40, 100, 40)
    assert shown["producers"][0] == {"id": "99", "transactional_id": "tx", "last_ms": "99"}
    assert shown["gaps"]["producers"] == {"state": "unknown", "reason": "x"}


def large(topics: int, partitions: int) -> MetadataResponse:
    listed = [
        MetadataResponsePartition(
            partition_index=n, leader_id=1, leader_epoch=1, replica_nodes=[1], isr_nodes=[1]
        )
        for n in range(partitions)
    ]
    return MetadataResponse(
        topics=[MetadataResponseTopic(name=f"topic-{n:05}", partitions=listed) for n in range(topics)]
    )


def test_ten_thousand_topics_and_a_thousand_groups_are_a_small_drawing() -> None:
    groups = [
        group(f"group-{n:04}", [f"topic-{(n * 7 + k) % 10_000:05}" for k in range(10)]) for n in range(1_000)
    ]
    sample = Sample(1.0, large(10_000, 3), groups=groups)
    began = time.process_time()
    chosen = choose(sample, no_rate, "")
    shown = view(sample, chosen)
    assert time.process_time() - began < 3
    assert (len(shown["topics"]), shown["topics_total"]) == (40, 10_000)
    assert len(shown["groups"]) <= 40
    assert len(partitions_to_ask(sample, chosen.topics)) == 120


def test_topics_with_many_partitions_cost_a_bounded_request() -> None:
    sample = Sample(1.0, large(3, 3_000))
    assert len(partitions_to_ask(sample, ["topic-00000", "topic-00001"])) == PARTITIONS_MAX
