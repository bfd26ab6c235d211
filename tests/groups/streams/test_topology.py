"""The topics of a topology: partitions of internal topics, copartitioning, tasks (KIP-1071)."""

from __future__ import annotations

import pytest

from penstock.groups.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    check_size,
    configure,
    topology_record,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.streams_group_heartbeat import KeyValue, TopicInfo, Topology
from tests.groups.streams.topologies import subtopology, topic, topology, word_count


def configured(given: Topology, **existing: int) -> ConfiguredTopology:
    topics = {name.replace("_", "-"): count for name, count in existing.items()}
    return configure(topology_record(given), topics)


def missing(found: ConfiguredTopology) -> dict[str, int]:
    return {each.name: each.partitions for each in found.missing}


def problem(given: Topology, **existing: int) -> tuple[StatusCode, str]:
    found = configured(given, **existing).problem
    assert found is not None
    return found.status, found.detail


def invalid(given: Topology, **existing: int) -> str:
    with pytest.raises(ApiError) as raised:
        configured(given, **existing)
    assert raised.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    return raised.value.message


def _with_configs(count: int) -> TopicInfo:
    found = topic("c")
    found.topic_configs = [KeyValue(key=f"k{number}", value="v") for number in range(count)]
    return found


def test_internal_topics_get_the_partitions_of_the_source() -> None:
    found = configured(word_count(), lines=4)
    assert missing(found) == {"counts-repartition": 4, "counts-changelog": 4}
    assert [dict(each.configs) for each in found.missing] == [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "delete"},
    ]
    assert found.problem is not None and found.problem.status is StatusCode.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: counts-changelog, counts-repartition"
    assert {name: each.tasks for name, each in found.subtopologies.items()} == {"0": 4, "1": 4}


def test_the_topology_is_ready_once_its_topics_exist() -> None:
    found = configured(word_count(), lines=4, counts_repartition=4, counts_changelog=4)
    assert found.is_ready and not found.missing
    assert [each.is_stateful for each in found.subtopologies.values()] == [False, True]


def test_missing_source_topics() -> None:
    sources = [f"t{number}" for number in range(5)]
    given = topology(subtopology("0", sources))
    assert problem(given, t3=1) == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics t0, t1, t2 and 1 additional topics are missing.",
    )
    assert not configured(given, t3=1).subtopologies


def test_an_internal_topic_with_other_partitions() -> None:
    assert problem(word_count(), lines=4, counts_repartition=4, counts_changelog=3) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic counts-changelog has different number of partitions: expected 4, found 3",
    )


def test_partitions_pass_through_a_chain_in_any_order() -> None:
    """Every subtopology reads the repartition topic of the next one; only the last one has a source."""
    links = [subtopology(f"{n:03}", repartition=[topic(f"r{n + 1}")], sinks=[f"r{n}"]) for n in range(200)]
    given = topology(
        *links, subtopology("999", ["s"], sinks=["r200"]), subtopology("sink", [], repartition=[topic("r0")])
    )
    assert set(missing(configured(given, s=7)).values()) == {7}


def test_the_widest_input_counts() -> None:
    given = topology(subtopology("0", ["a", "b"], sinks=["r"]), subtopology("1", repartition=[topic("r")]))
    found = configured(given, a=2, b=5)
    assert missing(found) == {"r": 5}
    assert found.subtopologies["0"].tasks == 5


def test_a_fixed_number_of_partitions_stays() -> None:
    given = topology(subtopology("0", ["a"], sinks=["r"]), subtopology("1", repartition=[topic("r", 9)]))
    assert missing(configured(given, a=2)) == {"r": 9}


def test_a_loop_has_no_number_of_partitions() -> None:
    given = topology(
        subtopology("0", repartition=[topic("a")], sinks=["b"]),
        subtopology("1", repartition=[topic("b")], sinks=["a"]),
    )
    assert "loops" in invalid(given)


def test_a_repartition_topic_without_a_writer() -> None:
    assert "never used as a sink" in invalid(topology(subtopology("0", ["a"], repartition=[topic("r")])), a=1)


def test_a_subtopology_without_inputs() -> None:
    assert "No source topics" in invalid(topology(subtopology("0")))


def test_joined_topics_get_the_number_of_the_sources() -> None:
    given = topology(
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], repartition=[topic("r")], copartition=[([0], [0])]),
    )
    assert missing(configured(given, a=2, b=6)) == {"r": 6}


def test_joined_sources_must_have_the_same_number() -> None:
    given = topology(subtopology("0", ["a", "b"], copartition=[([0, 1], [])]))
    assert configured(given, a=3, b=3).is_ready
    assert problem(given, a=2, b=6) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=6}]",
    )


def test_a_joined_repartition_topic_with_a_fixed_number() -> None:
    given = topology(
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], repartition=[topic("r", 3)], copartition=[([0], [0])]),
    )
    assert problem(given, a=2, b=6) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [6] of the "
        "source topic.",
    )


@pytest.mark.parametrize(("fixed", "expected"), [(0, {"r": 5, "s": 5}), (3, {"r": 3, "s": 3})])
def test_joined_repartition_topics(fixed: int, expected: dict[str, int]) -> None:
    """The one with a fixed number decides, else the highest number."""
    given = topology(
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], sinks=["s"]),
        subtopology("2", repartition=[topic("r"), topic("s", fixed)], copartition=[([], [0, 1])]),
    )
    assert missing(configured(given, a=2, b=5)) == expected


def test_fixed_numbers_of_unrelated_topics_do_not_matter() -> None:
    given = topology(
        subtopology("0", ["a"], sinks=["r", "s", "other"]),
        subtopology("1", repartition=[topic("r"), topic("s")], copartition=[([], [0, 1])]),
        subtopology("2", repartition=[topic("other", 9)]),
    )
    assert missing(configured(given, a=2)) == {"r": 2, "s": 2, "other": 9}


def test_a_copartition_group_of_topics_that_do_not_exist() -> None:
    given = topology(subtopology("0", ["a"], copartition=[([1], [])]))
    assert "refers to a topic" in invalid(given, a=1)


def test_a_subtopology_that_occurs_twice() -> None:
    assert "more than once" in invalid(topology(subtopology("0", ["a"]), subtopology("0", ["b"])), a=1, b=1)


def test_negative_partitions() -> None:
    given = topology(subtopology("0", ["a"], sinks=["r"]), subtopology("1", repartition=[topic("r", -2)]))
    assert "-2 partitions" in invalid(given, a=1)


@pytest.mark.parametrize(
    "given",
    [
        topology(*(subtopology(str(number)) for number in range(1001))),
        topology(subtopology("0", [f"t{number}" for number in range(2001)])),
        topology(subtopology("0", changelogs=[_with_configs(10_001)])),
        topology(subtopology("0", ["a"], copartition=[([0] * 10_001, [])])),
        topology(*(subtopology(f"{number}{'x' * 1000}") for number in range(200))),
    ],
    ids=["subtopologies", "topics", "configs", "copartition", "characters"],
)
def test_a_topology_that_is_too_large(given: Topology) -> None:
    with pytest.raises(ApiError) as raised:
        check_size(given)
    assert raised.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_too_many_tasks() -> None:
    assert "5000 tasks" in invalid(topology(subtopology("0", ["a"])), a=5001)
