"""Rights that are revoked while a member of a share group has records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.testing.brokers import BrokerThread, broker
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, create_topic, new_name
from tests.broker.share_groups import ACCEPT, Member, set_group_configs


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config=CONFIG) as started:
        yield started


@pytest.fixture
def admin(running: BrokerThread) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(admin: Admin) -> Topic:
    made = create_topic(admin)
    append(admin, made, b"a")
    admin.allow(Operation.READ, ResourceType.TOPIC, made.name)
    return made


def group_of(admin: Admin) -> str:
    group = new_name("group")
    set_group_configs(admin, group, share_auto_offset_reset="earliest")
    admin.allow(Operation.READ, ResourceType.GROUP, group)
    return group


def test_a_member_that_may_not_read_the_group_loses_its_session(
    running: BrokerThread, admin: Admin, topic: Topic
) -> None:
    group = group_of(admin)
    with RawClient(running.bootstrap) as client:
        member = Member(client, group, topic).join()
        assert member.take() == [(0, 0, 1)]
        assert admin.revoke(group) == 1
        response, _ = member.fetch(max_wait_ms=1)
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert Member(admin, group, topic).join().take() == [(0, 0, 2)]


@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
def test_records_of_a_topic_that_may_not_be_read_are_released(
    running: BrokerThread, admin: Admin, topic: Topic, api: str
) -> None:
    group = group_of(admin)
    with RawClient(running.bootstrap) as client:
        member = Member(client, group, topic).join()
        assert member.take() == [(0, 0, 1)]
        assert admin.revoke(topic.name) == 1
        if api == "ShareFetch":
            _, data = member.fetch(max_wait_ms=1)
            assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            assert member.outcome((0, 0, [ACCEPT])) == "TOPIC_AUTHORIZATION_FAILED"
        assert Member(admin, group, topic).join().take() == [(0, 0, 2)]
        assert admin.revoke(group) == 1


def test_a_stranger_does_not_end_the_session_of_a_member(
    running: BrokerThread, admin: Admin, topic: Topic
) -> None:
    group = group_of(admin)
    member = Member(admin, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    assert admin.revoke(group) == 1
    with RawClient(running.bootstrap) as client:
        stranger = Member(client, group, topic, member.id)
        response, _ = stranger.fetch(max_wait_ms=1, share_session_epoch=1)
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    response, _ = member.fetch(max_wait_ms=1)
    assert response.error_code == ErrorCode.NONE
