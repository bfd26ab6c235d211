"""Groups as pages show them: lag without a commit is unknown, resets stay inside the log."""

from __future__ import annotations

import pytest

from penstock.console.views.groups import (
    Target,
    classic_view,
    consumer_view,
    group_rows,
    offset_rows,
    reset_moves,
    streams_view,
)
from penstock.console.views.samples import GroupSample, History, Sample
from penstock.wire.apis.consumer_group_describe import (
    Assignment,
    Member,
    TopicPartitions,
)
from penstock.wire.apis.consumer_group_describe import (
    DescribedGroup as ConsumerGroup,
)
from penstock.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.apis.metadata import MetadataResponse
from penstock.wire.apis.streams_group_describe import Assignment as StreamsAssignment
from penstock.wire.apis.streams_group_describe import DescribedGroup as StreamsGroup
from penstock.wire.apis.streams_group_describe import Member as StreamsMember
from penstock.wire.apis.streams_group_describe import Subtopology, Topology
from penstock.wire.apis.streams_group_heartbeat import TaskIds

A, B, C = ("t", 0), ("t", 1), ("t", 2)
#: version 0, one topic "t" with the partitions 2 and 1, no user data
ASSIGNMENT = bytes.fromhex("0000 00000001 0001 74 00000002 00000002 00000001 ffffffff")


def test_an_assignment_of_classic_members_is_decoded() -> None:
    members = [
        DescribedGroupMember(member_id="m", client_id="c", client_host="/1.2.3.4", member_assignment=data)
        for data in (ASSIGNMENT, b"", b"\x00\x01garbage")
    ]
    shown = classic_view(DescribedGroup(group_state="Stable", protocol_data="range", members=members))
    assert [m["assignment"] for m in shown["members"]] == [[{"topic": "t", "partitions": [1, 2]}], [], []]


def test_a_group_of_the_consumer_protocol() -> None:
    owned = Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=[1, 0])])
    member = Member(member_id="m", client_id="c", member_epoch=4, assignment=owned)
    shown = consumer_view(ConsumerGroup(group_state="Stable", group_epoch=5, members=[member]))
    assert shown["epoch"] == 5
    assert shown["members"][0]["assignment"] == [{"topic": "t", "partitions": [0, 1]}]


def test_a_streams_group_has_the_partitions_and_the_names_of_its_tasks() -> None:
    subtopology = Subtopology(subtopology_id="0", source_topics=["t"])
    tasks = StreamsAssignment(
        active_tasks=[TaskIds(subtopology_id="0", partitions=[1, 0])],
        standby_tasks=[TaskIds(subtopology_id="0", partitions=[2])],
    )
    member = StreamsMember(member_id="m", client_id="c", member_epoch=4, assignment=tasks)
    topology = Topology(subtopologies=[subtopology])
    shown = streams_view(
        StreamsGroup(group_state="Stable", group_epoch=5, topology=topology, members=[member])
    )
    (found,) = shown["members"]
    assert (shown["epoch"], found["subscribed"]) == (5, ["t"])
    assert found["assignment"] == [{"topic": "t", "partitions": [0, 1]}]
    assert found["tasks"] == {"active": ["0_0", "0_1"], "standby": ["0_2"], "warm-up": []}


def test_a_partition_without_a_commit_has_no_lag() -> None:
    members = [{"id": "m", "client": "c", "assignment": [{"topic": "t", "partitions": [1]}]}]
    first, second = offset_rows({A: 3}, {A: 2**60, B: 9}, members)
    assert (first["lag"], first["end"], first["member"]) == (2**60 - 3, str(2**60), None)
    assert (second["committed"], second["lag"], second["member"]) == (None, None, "c")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (Target("earliest"), [10, 0, 5]),
        (Target("latest"), [20, 8, 5]),
        (Target("offset", 12), [12, 8, 5]),
        (Target("time", 99), [15, 8, 5]),
        (Target("shift", -4), [10, 2]),
        (Target("shift", 100), [20, 8]),
    ],
)
def test_a_reset_stays_inside_the_log(target: Target, wanted: list[int]) -> None:
    commits = {A: 12, B: 6}
    starts, ends = {A: 10, B: 0, C: 5}, {A: 20, B: 8, C: 5}
    moves = reset_moves(target, [A, B, C, ("gone", 0)], commits, starts, ends, {A: 15})
    assert [move.after for move in moves] == wanted


def test_the_list_has_lag_only_with_commits() -> None:
    history = History()
    groups = [
        GroupSample("a", "Stable", "classic", "consumer", 1, {A: 3}),
        GroupSample("b", "Empty", "share", "share", 1, {}),
    ]
    history.add(Sample(1.0, MetadataResponse(), ends={A: 5}, groups=groups))
    rows = group_rows(history)
    assert rows is not None
    assert [(row["name"], row["lag"]) for row in rows] == [("a", 2), ("b", None)]
    history.add(Sample(2.0, MetadataResponse(), groups=None))
    assert group_rows(history) is None
