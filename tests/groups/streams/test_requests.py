"""StreamsGroupHeartbeat: joining, tasks, statuses, endpoints, leaving (KIP-1071)."""

from __future__ import annotations

import pytest

from penstock.groups.settings import GroupSettings
from penstock.groups.streams.checks import check_streams_request, check_topic_names
from penstock.groups.streams.topology import StatusCode
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    Topology,
)
from tests.groups.streams.driver import Driver
from tests.groups.streams.topologies import (
    heartbeat,
    joining,
    subtopology,
    task_ids,
    tasks_of,
    topology,
    word_count,
)

AT_ONCE = GroupSettings(streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=0)
TOPICS = {"lines": 4, "counts-repartition": 4, "counts-changelog": 4}
ONE = topology(subtopology("0", ["lines"]))


def statuses(response: StreamsGroupHeartbeatResponse) -> list[StatusCode]:
    return [StatusCode(status.status_code) for status in response.status or ()]


def driver(**topics: int) -> Driver:
    return Driver(AT_ONCE, topics or TOPICS)


# -- joining, tasks


def test_a_sole_member_gets_all_tasks() -> None:
    group = driver()
    joined = group.beat(joining("a", word_count()))
    assert joined.member_epoch == 2 and joined.status == []
    assert tasks_of(joined.active_tasks) == {"0": {0, 1, 2, 3}, "1": {0, 1, 2, 3}}
    assert (joined.standby_tasks, joined.warmup_tasks) == ([], [])
    assert group.group().state_name == "Stable"
    again = group.beat(heartbeat("a", 2, {"0": range(4), "1": range(4)}))
    assert again.member_epoch == 2 and again.active_tasks is None and again.status == []


def test_the_first_assignment_waits_for_more_members() -> None:
    group = Driver(GroupSettings(), TOPICS)
    first = group.beat(joining("a", ONE))
    assert statuses(first) == [StatusCode.ASSIGNMENT_DELAYED]
    assert (first.member_epoch, first.active_tasks) == (1, [])
    group.sleep(2999)
    group.beat(joining("b", ONE))
    assert group.group().state_name == "Assigning"
    group.sleep(1)
    for member in ("a", "b"):
        response = group.beat(heartbeat(member, 1, {}))
        assert response.member_epoch == 3 and response.status == []
        assert sum(map(len, (tasks_of(response.active_tasks) or {}).values())) == 2


def test_assignments_keep_their_distance() -> None:
    settings = GroupSettings(streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=1000)
    group = Driver(settings, TOPICS)
    group.beat(joining("a", ONE))
    second = group.beat(joining("b", ONE))
    assert statuses(second) == [StatusCode.ASSIGNMENT_DELAYED] and second.active_tasks == []
    assert second.heartbeat_interval_ms < settings.streams_heartbeat_ms
    group.sleep(1000)
    assert group.beat(heartbeat("b", second.member_epoch, {})).status == []
    assert group.group().assignment_epoch == 3


def test_a_task_is_revoked_before_another_process_gets_it() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    joined = group.beat(joining("b", ONE))
    assert (joined.member_epoch, joined.active_tasks) == (3, [])
    kept = group.beat(heartbeat("a", 2, {"0": range(4)}))
    assert kept.member_epoch == 2
    (left,) = (tasks_of(kept.active_tasks) or {}).values()
    assert len(left) == 2
    assert group.beat(heartbeat("b", 3, {})).active_tasks is None
    assert group.group().state_name == "Reconciling"
    revoked = group.beat(heartbeat("a", 2, {"0": left}))
    assert revoked.member_epoch == 3
    got = tasks_of(group.beat(heartbeat("b", 3, {})).active_tasks)
    assert got == {"0": {0, 1, 2, 3} - left}
    assert group.group().state_name == "Stable"


def test_a_member_that_does_not_revoke_its_tasks_is_removed() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    group.beat(joining("b", ONE))
    group.beat(heartbeat("a", 2, {"0": range(4)}))
    group.sleep(9_999)
    group.beat(heartbeat("b", 3, {}))
    assert "a" in group.group().members
    group.sleep(1)
    assert set(group.group().members) == {"b"}
    assert group.send(heartbeat("a", 2)).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert tasks_of(group.beat(heartbeat("b", 3, {})).active_tasks) == {"0": {0, 1, 2, 3}}


def test_a_member_without_heartbeats_is_removed() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    group.sleep(AT_ONCE.streams_session_timeout_ms)
    assert group.group().state_name == "Empty"


def test_standby_tasks_are_on_other_processes() -> None:
    settings = GroupSettings(
        streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=0, streams_standby_replicas=1
    )
    group = Driver(settings, TOPICS)
    group.beat(joining("a", word_count()))
    group.beat(joining("b", word_count()))
    kept = group.beat(heartbeat("a", 2, {"0": range(4), "1": range(4)}))
    revoked = group.beat(heartbeat("a", 2, tasks_of(kept.active_tasks) or {}))
    assert revoked.member_epoch == 3
    other = group.beat(heartbeat("b", 3, {}))
    first = group.beat(heartbeat("a", 3, tasks_of(revoked.active_tasks or kept.active_tasks) or {}))
    active, standby = tasks_of(other.active_tasks) or {}, tasks_of(other.standby_tasks) or {}
    assert standby["1"] == {0, 1, 2, 3} - active.get("1", set())
    assert "0" not in standby
    member = group.group().members["a"]
    assert first.error_code == 0 and member.assigned.standby["1"] == active["1"]


def test_a_config_of_the_group_calls_for_a_new_assignment() -> None:
    group = driver()
    group.beat(joining("a", word_count()))
    group.env.own_settings["g"] = GroupSettings(streams_standby_replicas=1, streams_assignment_interval_ms=0)
    assert group.beat(heartbeat("a", 2)).member_epoch == 3
    assert group.group().assignment_configs == {"num.standby.replicas": "1"}


def test_new_partitions_call_for_a_new_assignment() -> None:
    group = driver(lines=2)
    group.beat(joining("a", ONE))
    group.add_topic("lines", 3)
    response = group.beat(heartbeat("a", 2, {"0": range(2)}))
    assert response.member_epoch == 3 and tasks_of(response.active_tasks) == {"0": {0, 1, 2}}
    group.add_topic("other", 3)
    assert group.beat(heartbeat("a", 3, {"0": range(3)})).member_epoch == 3


# -- topology


def test_missing_internal_topics_are_to_be_created() -> None:
    group = driver(lines=4)
    joined = group.beat(joining("a", word_count()))
    assert statuses(joined) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert joined.active_tasks == [] and joined.heartbeat_interval_ms < AT_ONCE.streams_heartbeat_ms
    assert {topic.name: topic.partitions for topic in group.missing} == {
        "counts-repartition": 4,
        "counts-changelog": 4,
    }
    assert group.group().state_name == "NotReady"
    for name in ("counts-repartition", "counts-changelog"):
        group.add_topic(name, 4)
    response = group.beat(heartbeat("a", joined.member_epoch, {}))
    assert response.status == [] and not group.missing
    assert tasks_of(response.active_tasks) == {"0": {0, 1, 2, 3}, "1": {0, 1, 2, 3}}
    assert group.group().state_name == "Stable"


def test_members_lose_their_tasks_with_the_source() -> None:
    group = driver(lines=2)
    group.beat(joining("a", ONE))
    group.remove_topic("lines")
    response = group.beat(heartbeat("a", 2, {"0": range(2)}))
    assert statuses(response) == [StatusCode.MISSING_SOURCE_TOPICS] and response.active_tasks == []
    assert not group.missing


def test_a_stale_topology() -> None:
    group = driver()
    group.beat(joining("a", topology(subtopology("0", ["lines"]), epoch=3)))
    stale = group.beat(joining("b", topology(subtopology("other", ["lines"]), epoch=2)))
    assert statuses(stale) == [StatusCode.STALE_TOPOLOGY]
    assert "2 is behind the group's topology epoch 3" in (stale.status or [])[0].status_detail


@pytest.mark.parametrize(
    "other", [topology(subtopology("0", ["lines", "u"])), topology(subtopology("0", ["lines"]), epoch=1)]
)
def test_a_topology_cannot_be_replaced(other: Topology) -> None:
    group = driver(lines=2, u=2)
    group.beat(joining("a", ONE))
    before = len(group.log)
    assert group.send(joining("b", other)).error == ErrorCode.INVALID_REQUEST
    assert len(group.log) == before


def test_an_invalid_topology_changes_nothing() -> None:
    group = driver()
    invalid = topology(subtopology("0"))
    assert group.send(joining("a", invalid)).error == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not group.log and not group.shard.group_count


@pytest.mark.parametrize("tasks", [{"1": [0]}, {"0": [4]}, {"0": [-1]}])
def test_tasks_that_do_not_exist(tasks: dict[str, list[int]]) -> None:
    group = driver()
    group.beat(joining("a", ONE))
    assert group.send(heartbeat("a", 2, tasks)).error == ErrorCode.INVALID_REQUEST


# -- epochs, groups


def test_epochs() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    assert group.send(heartbeat("a", 3)).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.send(heartbeat("a", 1)).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.send(heartbeat("b", 2)).error == ErrorCode.UNKNOWN_MEMBER_ID
    group.beat(joining("b", ONE))
    kept = group.beat(heartbeat("a", 2, {"0": range(4)}))
    group.beat(heartbeat("a", 2, tasks_of(kept.active_tasks)))
    # The response with epoch 3 was lost.
    assert group.beat(heartbeat("a", 2, tasks_of(kept.active_tasks))).member_epoch == 3
    assert group.send(heartbeat("a", 2, {"0": range(4)})).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.send(heartbeat("a", 2)).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_joins_again_and_keeps_its_tasks() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    again = group.beat(joining("a", ONE))
    assert again.member_epoch == 2 and tasks_of(again.active_tasks) == {"0": {0, 1, 2, 3}}


def test_a_group_has_a_size() -> None:
    group = Driver(GroupSettings(streams_size_max=1), TOPICS)
    group.beat(joining("a", ONE))
    assert group.send(joining("b", ONE)).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_leaving() -> None:
    group = driver()
    assert group.send(heartbeat("a", -1)).error == ErrorCode.GROUP_ID_NOT_FOUND
    group.beat(joining("a", ONE))
    assert group.send(heartbeat("b", -1)).error == ErrorCode.UNKNOWN_MEMBER_ID
    left = group.beat(heartbeat("a", -1))
    assert (left.member_id, left.member_epoch, left.status) == ("a", -1, [])
    assert group.group().state_name == "Empty"
    assert not group.group().target and not group.shard.timers.take_due(("streams-session", "g", "a"))


def test_the_coordinator_crashes() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    group.beat(joining("b", ONE))
    group.beat(heartbeat("a", 2, {"0": range(4)}))
    group.restart()
    assert group.group().state_name == "Reconciling"
    revoked = group.beat(heartbeat("a", 2, {"0": sorted(group.group().members["a"].assigned.active["0"])}))
    assert revoked.member_epoch == 3
    assert tasks_of(group.beat(heartbeat("b", 3, {})).active_tasks) is not None
    group.restart()
    group.sleep(AT_ONCE.streams_session_timeout_ms)
    assert group.group().is_empty


def test_an_empty_classic_group_becomes_a_streams_group_and_back() -> None:
    group = driver()
    classic = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    group.submit("c", lambda shard, pending: shard.members.join(classic, group.client("c", 3), pending))
    group.sleep(60_000)
    assert group.shard.list((), ())[0].group_type == "classic"
    group.beat(joining("a", ONE))
    assert group.group().type == "streams"
    refused = group.submit(
        "c", lambda shard, pending: shard.members.join(classic, group.client("c", 3), pending)
    )
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.beat(heartbeat("a", -1))
    group.submit("c", lambda shard, pending: shard.members.join(classic, group.client("c", 3), pending))
    assert group.shard.list((), ())[0].group_type == "classic"
    refused = group.send(joining("a", ONE))
    assert refused.error == ErrorCode.GROUP_ID_NOT_FOUND


# -- offsets


def commit(group: Driver, member: str, epoch: int, topic: str, partition: int, version: int = 9) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, partitions=[OffsetCommitRequestPartition(partition_index=partition)]
            )
        ],
    )
    return group.submit(member, lambda shard, _: shard.commit(request, version)).error


def test_commits_of_a_stale_epoch() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    assert commit(group, "a", 2, "lines", 0) == ErrorCode.NONE
    assert commit(group, "a", 3, "lines", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(group, "a", 2, "lines", 0, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(group, "b", 2, "lines", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    group.beat(joining("b", ONE))
    kept = group.beat(heartbeat("a", 2, {"0": range(4)}))
    (left,) = (tasks_of(kept.active_tasks) or {}).values()
    group.beat(heartbeat("a", 2, {"0": left}))
    gone = min({0, 1, 2, 3} - left)
    assert commit(group, "a", 2, "lines", min(left)) == ErrorCode.NONE
    assert commit(group, "a", 2, "lines", gone) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(group, "a", 2, "other", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.group().subscribes_to("lines") and not group.group().subscribes_to("other")


# -- endpoints, shutdown


def test_members_with_endpoints_are_told_of_each_other() -> None:
    group = driver()
    first = group.beat(joining("a", ONE, user_endpoint=Endpoint(host="h", port=80)))
    assert first.endpoint_information_epoch == 0
    again = group.beat(heartbeat("a", 2))
    assert again.partitions_by_user_endpoint is None
    joined = group.beat(joining("b", ONE, user_endpoint=Endpoint(host="i", port=81)))
    assert joined.endpoint_information_epoch == 1
    told = group.beat(heartbeat("a", 2))
    assert told.endpoint_information_epoch > 0
    hosts = {
        each.user_endpoint.host: {found.topic: set(found.partitions) for found in each.active_partitions}
        for each in told.partitions_by_user_endpoint or ()
    }
    assert set(hosts) == {"h", "i"} and hosts["i"] == {}
    assert hosts["h"]["lines"] == {*group.group().members["a"].assigned.active["0"]}


def test_a_shutdown_reaches_all_members() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    group.beat(joining("b", ONE))
    leaving = heartbeat("b", -1)
    leaving.shutdown_application = True
    group.beat(leaving)
    told = group.beat(heartbeat("a", 2))
    assert statuses(told) == [StatusCode.SHUTDOWN_APPLICATION]
    assert "member b encountered" in (told.status or [])[0].status_detail
    group.beat(heartbeat("a", -1))
    assert group.beat(joining("c", ONE)).status == []


# -- invalid requests


def refusal(**changes: object) -> tuple[ErrorCode, str]:
    request = joining("a", ONE)
    for name, value in changes.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as raised:
        check_streams_request(request)
    return raised.value.code, raised.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instance_id": "i"}, "Static membership"),
        ({"task_offsets": [TaskOffset()]}, "TaskOffsets"),
        ({"task_end_offsets": []}, "TaskEndOffsets"),
        ({"warmup_tasks": [TaskIds()]}, "WarmupTasks are not supported"),
        ({"member_id": " "}, "MemberId"),
        ({"group_id": ""}, "GroupId"),
        ({"rack_id": ""}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"active_tasks": None}, "ActiveTasks must be empty"),
        ({"standby_tasks": task_ids({"0": [1]})}, "StandbyTasks must be empty"),
        ({"topology": None}, "Topology must be non-null"),
        ({"member_epoch": -2}, "InstanceId can't be null"),
        ({"member_epoch": -3}, "MemberEpoch is -3"),
        ({"member_epoch": 1}, "Topology can only be provided"),
        ({"member_epoch": 1, "topology": None, "standby_tasks": None}, "If one task-type"),
        (
            {"member_epoch": 1, "topology": None, "active_tasks": task_ids({"0": range(20_001)})},
            "more than 5000 tasks",
        ),
        ({"client_tags": [KeyValue(key=str(n)) for n in range(1001)]}, "ClientTags"),
        ({"client_tags": [KeyValue(key="k", value="v" * 30_000)] * 4}, "characters"),
    ],
)
def test_invalid_requests(changes: dict[str, object], message: str) -> None:
    code, found = refusal(**changes)
    assert code == ErrorCode.INVALID_REQUEST and message in found


def test_regular_expressions_are_not_supported() -> None:
    given = topology(subtopology("0", ["lines"]))
    given.subtopologies[0].source_topic_regex = ["l.*"]
    assert refusal(topology=given)[0] == ErrorCode.INVALID_REQUEST


def test_a_changelog_has_no_partitions_of_its_own() -> None:
    given = word_count()
    given.subtopologies[1].state_changelog_topics[0].partitions = 3
    assert refusal(topology=given)[0] == ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize("name", ["__consumer_offsets", "a b", ""])
def test_names_of_topics(name: str) -> None:
    check_topic_names(None)
    check_topic_names(word_count())
    with pytest.raises(ApiError) as raised:
        check_topic_names(topology(subtopology("0", ["lines"], sinks=[name])))
    assert raised.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY


# -- administration


def test_description() -> None:
    group = driver(lines=4)
    group.beat(
        joining(
            "a",
            word_count(),
            "p",
            rack_id="r",
            client_tags=[KeyValue(key="zone", value="z")],
            user_endpoint=Endpoint(host="h", port=80),
        )
    )
    described = group.shard.streams_admin.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("NotReady", 2, 2)
    assert described.topology is not None and described.topology.subtopologies is not None
    assert described.topology.subtopologies[1].state_changelog_topics[0].partitions == 0
    for name in ("counts-repartition", "counts-changelog"):
        group.add_topic(name, 4)
    group.beat(heartbeat("a", 2, {}))
    described = group.shard.streams_admin.describe("g")
    assert described.group_state == "Stable"
    assert described.topology is not None and described.topology.subtopologies is not None
    (changelog,) = described.topology.subtopologies[1].state_changelog_topics
    assert (changelog.name, changelog.partitions) == ("counts-changelog", 4)
    assert [(each.key, each.value) for each in changelog.topic_configs] == [("cleanup.policy", "compact")]
    (member,) = described.members
    assert (member.member_id, member.process_id, member.rack_id) == ("a", "p", "r")
    assert member.user_endpoint == Endpoint(host="h", port=80)
    assert member.client_tags == [KeyValue(key="zone", value="z")]
    assert tasks_of(member.assignment.active_tasks) == {"0": {0, 1, 2, 3}, "1": {0, 1, 2, 3}}
    assert member.assignment == member.target_assignment
    assert group.shard.streams_admin.describe("other").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.shard.streams_admin.describe("").error_code == ErrorCode.INVALID_GROUP_ID


def test_listing_and_deletion() -> None:
    group = driver()
    group.beat(joining("a", ONE))
    (listed,) = group.shard.list((), {"streams"})
    assert (listed.protocol_type, listed.group_type, listed.group_state) == ("streams", "streams", "Stable")
    assert group.shard.delete("g").error_code == ErrorCode.NON_EMPTY_GROUP
    group.now_ms += AT_ONCE.streams_session_timeout_ms
    deleted: list[int] = []
    group.notify(lambda shard: deleted.append(shard.delete("g").error_code))
    assert deleted == [ErrorCode.NONE]
    assert not group.shard.group_count and not group.replica().group_count
