"""Streams groups on the wire: internal topics, rights, the feature level (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.groups.streams.topology import StatusCode
from penstock.metadata.features import UpgradeType
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.testing.brokers import BrokerThread, broker
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.configs import TOPIC, value_of
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic, describe_topic, new_name
from tests.broker.streams_groups import StreamsMember, counting, describe_streams

SETTINGS = {"group.streams.initial.rebalance.delay.ms": 0, "group.streams.assignment.interval.ms": 0}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={**CONFIG, **SETTINGS}) as started:
        yield started


@pytest.fixture
def admin(running: BrokerThread) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def statuses(response: StreamsGroupHeartbeatResponse) -> list[StatusCode]:
    return [StatusCode(status.status_code) for status in response.status or ()]


def test_the_broker_creates_the_internal_topics(admin: Admin) -> None:
    group, source = new_name("app"), create_topic(admin, partitions=3)
    member = StreamsMember(admin, group, counting(source.name, group))
    first = member.beat()
    assert statuses(first) == [StatusCode.MISSING_INTERNAL_TOPICS] and first.active_tasks == []
    while statuses(response := member.beat()) == [StatusCode.MISSING_INTERNAL_TOPICS]:
        assert not response.error_code
    assert member.active == {"0": {0, 1, 2}, "1": {0, 1, 2}}
    for name, policy in ((f"{group}-counts-changelog", "compact"), (f"{group}-counts-repartition", "delete")):
        assert len(describe_topic(admin, name).partitions) == 3
        assert value_of(admin, TOPIC, name, "cleanup.policy")[0] == policy
    described = describe_streams(admin, group)
    assert described.group_state == "Stable" and described.authorized_operations != -(2**31)
    listed = admin.call(LIST_GROUPS, 5, ListGroupsRequest(types_filter=["Streams"])).groups
    assert [(found.group_type, found.protocol_type) for found in listed if found.group_id == group] == [
        ("streams", "streams")
    ]
    second = StreamsMember(admin, group, counting(source.name, group))
    while sum(map(len, second.active.values())) != 3:
        assert not second.beat().error_code and not member.beat().error_code
    second.leave()
    while sum(map(len, member.active.values())) != 6:
        assert not member.beat().error_code


def test_a_member_is_told_why_a_topic_cannot_be_created(admin: Admin) -> None:
    group, source = new_name("app"), create_topic(admin)
    member = StreamsMember(admin, group, counting(source.name, group, replicas=3))
    while "Creation failed" not in (detail := (member.beat().status or [])[0].status_detail):
        assert detail.startswith("Internal topics are missing")
    assert f"{group}-counts-changelog (" in detail


def test_a_member_without_the_right_to_create_topics(client: RawClient, admin: Admin) -> None:
    group, source = new_name("app"), create_topic(admin)
    admin.allow(Operation.READ, ResourceType.GROUP, group)
    topology = counting(source.name, group)
    member = StreamsMember(client, group, topology)
    assert member.beat().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    internal = [f"{group}-counts-{kind}" for kind in ("changelog", "repartition")]
    for name in (source.name, *internal):
        admin.allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
    (status,) = member.beat().status or []
    assert status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
    assert status.status_detail.endswith(f"; Unauthorized to CREATE on topics {', '.join(internal)}.")
    for name in internal:
        admin.allow(Operation.CREATE, ResourceType.TOPIC, name)
    while not member.active:
        assert not member.beat().error_code


@pytest.mark.parametrize("kind", ["state_changelog_topics", "repartition_source_topics"])
def test_a_link_mirrors_no_internal_topic(client: RawClient, admin: Admin, kind: str) -> None:
    """The broker creates it, with all rights: the topic could mirror what the member may not read."""
    group, source = new_name("app"), create_topic(admin)
    admin.allow(Operation.ALL, ResourceType.GROUP, group)
    admin.allow(Operation.ALL, ResourceType.TOPIC, "*")
    topology = counting(source.name, group)
    (topic,) = next(found for each in topology.subtopologies if (found := getattr(each, kind)))
    topic.topic_configs.append(KeyValue(key="penstock.link", value=f"west/mirroring/{'A' * 22}/secrets"))
    response = StreamsMember(client, group, topology).beat()
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "penstock.link" in (response.error_message or "")
    admin.revoke()


def test_a_description_needs_its_topics(client: RawClient, admin: Admin) -> None:
    group, source = new_name("app"), create_topic(admin)
    StreamsMember(admin, group, counting(source.name, group)).beat()
    assert describe_streams(client, group).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    admin.allow(Operation.DESCRIBE, ResourceType.GROUP, group)
    assert describe_streams(client, group).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name in (source.name, *(f"{group}-counts-{kind}" for kind in ("changelog", "repartition"))):
        admin.allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
    described = describe_streams(client, group)
    assert described.error_code == ErrorCode.NONE and len(described.members) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_refusals(admin: Admin, change: dict[str, object], code: ErrorCode) -> None:
    request = StreamsGroupHeartbeatRequest(group_id=new_name("app"), member_id="m")
    for name, value in change.items():
        setattr(request, name, value)
    response = admin.call(STREAMS_GROUP_HEARTBEAT, 0, request)
    assert response.error_code == code and response.error_message


def test_a_cluster_that_an_earlier_version_created() -> None:
    update = FeatureUpdate(
        feature="streams.version", max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE
    )
    with broker() as running, RawClient(running.bootstrap) as client:
        client.call(
            UPDATE_FEATURES, UPDATE_FEATURES.max_version, UpdateFeaturesRequest(feature_updates=[update])
        )
        member = StreamsMember(client, "app", counting("t", "app"))
        response = member.beat()
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "penstock cluster upgrade" in (response.error_message or "")
        assert describe_streams(client, "app").error_code == ErrorCode.UNSUPPORTED_VERSION
