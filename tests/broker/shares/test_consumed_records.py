"""Records that all share groups have finished are deleted, if the topic wants that."""

from __future__ import annotations

import pytest

from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, create_topic, list_offset, new_name, until
from tests.broker.share_groups import ACCEPT, REJECT, Member, set_group_configs

EARLIEST = -2


@pytest.fixture
def topic(client: RawClient) -> Topic:
    """Kafka's brokers accept booleans in any case, too."""
    return create_topic(client, configs={"penstock.delete.after.consumption": " True"})


def log_start(client: RawClient, topic: Topic) -> int:
    return list_offset(client, topic, EARLIEST).offset


def test_the_log_start_follows_the_slowest_group(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a", b"b", b"c", b"d")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 2, [ACCEPT, REJECT, ACCEPT])) == "NONE"
    until(lambda: log_start(client, topic) == 3)
    other = new_name("group")
    set_group_configs(client, other, share_auto_offset_reset="earliest")
    second = Member(client, other, topic, "other").join()
    append(client, topic, b"e")
    assert member.take() == [(4, 4, 1)]
    assert member.outcome((3, 4, [ACCEPT])) == "NONE"
    assert second.take() == [(3, 4, 1)]
    assert second.outcome((3, 3, [ACCEPT])) == "NONE"
    until(lambda: log_start(client, topic) == 4)
    assert second.outcome((4, 4, [ACCEPT])) == "NONE"
    until(lambda: log_start(client, topic) == 5)


def test_without_a_share_group_nothing_is_deleted(client: RawClient, topic: Topic, group: str) -> None:
    """Neither is anything deleted for a group that has not fetched yet."""
    append(client, topic, b"a")
    Member(client, group, topic).join()
    busy = create_topic(client, configs={"penstock.delete.after.consumption": "true"})
    append(client, busy, b"a")
    member = Member(client, new_name("group"), busy)
    set_group_configs(client, member.group, share_auto_offset_reset="earliest")
    member.join().take()
    assert member.outcome((0, 0, [ACCEPT])) == "NONE"
    until(lambda: log_start(client, busy) == 1)
    assert log_start(client, topic) == 0
