"""A classic group survives the log: its record describes it, and is taken at the time of the decision."""

from __future__ import annotations

from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.classic_records import group_from_record, group_record
from penstock.groups.records import GroupMetadataKey, GroupMetadataValue


def stable_group() -> ClassicGroup:
    group = ClassicGroup("g", 1_000)
    for id, instance_id in (("a", None), ("b", "static")):
        member = ClassicMember(
            id=id,
            instance_id=instance_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocols={"range": b"metadata", "roundrobin": b""},
        )
        group.add(member, "consumer", None)
    group.next_generation(2_000)
    group.members["a"].assignment = b"t-0"
    group.enter(ClassicState.STABLE, 3_000)
    return group


def test_a_group_is_the_same_after_it_was_read_from_the_log() -> None:
    group = stable_group()
    found = group_from_record(*group_record(group)())
    assert (found.id, found.generation, found.protocol, found.leader) == ("g", 1, "range", "a")
    assert (found.state, found.since_ms, found.instances) == (ClassicState.STABLE, 3_000, {"static": "b"})
    assert [(m.id, m.assignment, m.protocols) for m in found.members.values()] == [
        ("a", b"t-0", {"range": b"metadata"}),
        ("b", b"", {"range": b"metadata"}),
    ]


def test_later_changes_of_members_are_not_in_the_record() -> None:
    group = stable_group()
    make = group_record(group)
    group.members["a"].assignment = b"changed"
    group.remove("b")
    _, value = make()
    assert [(m.member_id, m.assignment) for m in value.members] == [("a", b"t-0"), ("b", b"")]


def test_a_record_of_an_old_broker_has_neither_time_nor_rebalance_timeout() -> None:
    _, value = group_record(stable_group())()
    value.current_state_timestamp = -1
    value.members[0].rebalance_timeout = -1
    found = group_from_record(GroupMetadataKey(group="g"), value)
    assert found.since_ms is None
    assert found.members["a"].rebalance_timeout_ms == 10_000


def test_a_group_without_members_is_empty() -> None:
    found = group_from_record(GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type="", generation=4))
    assert (found.state, found.protocol_type, found.generation) == (ClassicState.EMPTY, None, 4)
