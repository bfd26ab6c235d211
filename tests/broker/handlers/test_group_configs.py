"""Configs of a group's own: set, shown, bounded by the broker's, and in force at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.config import BrokerConfig, check_group_configs, group_values
from penstock.model.errors import ErrorCode, InvalidConfig
from penstock.testing import broker
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from tests.broker.configs import DEFAULT, DELETE, GROUP, SET, alter, describe, replace, shown, value_of
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import AGAINST, create_topic, new_name

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
#: a config source
DYNAMIC_GROUP = 8
OK = (ErrorCode.NONE, None)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker of ours, or the one of `tests.broker.conftest`."""
    if AGAINST:
        yield AGAINST
        return
    with broker() as running:
        yield running.bootstrap


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    with RawClient(address) as connected:
        connected.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["any"]))
        yield connected


@pytest.fixture
def group() -> str:
    return new_name("group")


def heartbeat_ms(client: RawClient, group: str) -> int:
    """The heartbeat interval of a sole member: it joins, and leaves again."""
    member_id = new_name("member")
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[create_topic(client).name],
        topic_partitions=[],
    )
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.NONE, response.error_message
    leaving = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
    assert client.call(CONSUMER_GROUP_HEARTBEAT, 1, leaving).error_code == ErrorCode.NONE
    return response.heartbeat_interval_ms


def groups_with_configs(client: RawClient) -> set[str]:
    response = client.call(LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[GROUP]))
    assert {found.resource_type for found in response.config_resources} <= {GROUP}
    return {found.resource_name for found in response.config_resources}


def set_in(client: RawClient, group: str, expected: dict[str, str]) -> bool:
    """Whether exactly `expected` is set for the group; Apache Kafka gets the time to bring it about."""
    while True:
        configs = shown(client, GROUP, group).values()
        found = {c.name: c.value for c in configs if c.config_source == DYNAMIC_GROUP}
        if not AGAINST or found == expected:
            return found == expected


def test_a_group_without_configs_shows_the_brokers(client: RawClient, group: str) -> None:
    configs = shown(client, GROUP, group)
    assert {name: configs[name].value for name in (SESSION, HEARTBEAT, ASSIGNMENT)} == {
        SESSION: "45000",
        HEARTBEAT: "5000",
        ASSIGNMENT: "1000",
    }
    assert {configs[name].config_source for name in (SESSION, HEARTBEAT, ASSIGNMENT)} == {DEFAULT}
    assert not any(config.read_only for config in configs.values())


def test_configs_are_set_shown_listed_and_deleted(client: RawClient, group: str) -> None:
    assert alter(client, GROUP, group, (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == OK

    assert set_in(client, group, {SESSION: "50000", HEARTBEAT: "6000"})
    assert group in groups_with_configs(client)
    assert alter(client, GROUP, group, (SESSION, DELETE, None)) == OK
    assert set_in(client, group, {HEARTBEAT: "6000"})
    assert value_of(client, GROUP, group, SESSION) == ("45000", DEFAULT)
    assert replace(client, GROUP, group, {}) == OK
    assert set_in(client, group, {})
    assert group not in groups_with_configs(client)


def test_synonyms_are_the_brokers(client: RawClient, group: str) -> None:
    assert alter(client, GROUP, group, (SESSION, SET, "50000")) == OK
    assert set_in(client, group, {SESSION: "50000"})

    (config,) = describe(client, GROUP, group, [SESSION], synonyms=True).configs

    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        (SESSION, "50000", DYNAMIC_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]


def test_replacing_sets_the_given_configs_and_no_others(client: RawClient, group: str) -> None:
    assert alter(client, GROUP, group, (HEARTBEAT, SET, "6000")) == OK
    assert replace(client, GROUP, group, {SESSION: "46000"}) == OK
    assert set_in(client, group, {SESSION: "46000"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (SESSION, "44999"),
        (SESSION, "60001"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        (ASSIGNMENT, "15001"),
        (SESSION, "soon"),
        ("consumer.no.such.config", "1"),
    ],
)
def test_values_that_a_group_cannot_have(client: RawClient, group: str, key: str, value: str) -> None:
    code, message = alter(client, GROUP, group, (key, SET, value))

    assert code == ErrorCode.INVALID_CONFIG
    assert message
    assert set_in(client, group, {})


def test_a_group_has_a_name(client: RawClient) -> None:
    assert describe(client, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
    assert alter(client, GROUP, "", (SESSION, SET, "50000"))[0] == ErrorCode.INVALID_REQUEST


def test_members_get_the_groups_interval_at_once(client: RawClient, group: str) -> None:
    assert heartbeat_ms(client, group) == 5000
    assert alter(client, GROUP, group, (HEARTBEAT, SET, "7000")) == OK
    assert set_in(client, group, {HEARTBEAT: "7000"})
    assert heartbeat_ms(client, group) == 7000
    assert alter(client, GROUP, group, (HEARTBEAT, DELETE, None)) == OK
    assert set_in(client, group, {})
    assert heartbeat_ms(client, group) == 5000


@penstock_only
def test_configs_outlive_the_broker_and_bend_to_new_bounds(tmp_path: Path, group: str) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert alter(client, GROUP, group, (HEARTBEAT, SET, "9000")) == OK
    bounds = {"group.consumer.max.heartbeat.interval.ms": "8000"}
    with broker(data=tmp_path, config=bounds) as running, RawClient(running.bootstrap) as client:
        client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))
        assert value_of(client, GROUP, group, HEARTBEAT) == ("9000", DYNAMIC_GROUP)
        assert heartbeat_ms(client, group) == 8000


def test_a_session_is_longer_than_the_interval_of_heartbeats() -> None:
    broker_config = BrokerConfig(
        {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}
    )
    with pytest.raises(InvalidConfig, match="must be more than"):
        check_group_configs({SESSION: "5000"}, broker_config)
    check_group_configs({SESSION: "5000", HEARTBEAT: "1000"}, broker_config)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("group.consumer.session.timeout.ms", "44000", "must not be less than"),
        ("group.consumer.heartbeat.interval.ms", "16000", "must not be more than"),
        ("group.consumer.assignment.interval.ms", "16000", "must not be more than"),
    ],
)
def test_the_brokers_own_values_are_within_its_bounds(key: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        BrokerConfig({key: value})


def test_unset_configs_are_those_of_the_broker() -> None:
    broker_config = BrokerConfig({"group.consumer.assignment.interval.ms": "300"})
    values = group_values({SESSION: "50000"}, broker_config)
    assert [values[key] for key in (SESSION, HEARTBEAT, ASSIGNMENT)] == [50_000, 5000, 300]
