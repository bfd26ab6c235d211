"""DeleteTopics, by name and by id."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.testing import broker
from penstock.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    create_topic,
    every_version,
    topic_exists,
)


def delete(client: RawClient, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    return client.call(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=list(states), timeout_ms=5000)).responses


def delete_by_name(client: RawClient, *names: str, version: int) -> list[DeletableTopicResult]:
    if version >= 6:
        return delete(client, *(DeleteTopicState(name=name) for name in names))
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)
    return client.call(DELETE_TOPICS, version, request).responses


DELETE_VERSIONS = pytest.mark.parametrize("version", every_version(DELETE_TOPICS))


@DELETE_VERSIONS
def test_a_topic_is_deleted_by_name(client: RawClient, version: int) -> None:
    topic = create_topic(client)

    (result,) = delete_by_name(client, topic.name, version=version)

    assert (result.name, result.error_code) == (topic.name, ErrorCode.NONE)
    if version >= 6:
        assert result.topic_id == topic.id
    assert not topic_exists(client, topic.name)


def test_a_topic_is_deleted_by_id(client: RawClient) -> None:
    topic = create_topic(client)

    (result,) = delete(client, DeleteTopicState(name=None, topic_id=topic.id))

    assert (result.name, result.topic_id, result.error_code) == (topic.name, topic.id, ErrorCode.NONE)
    assert not topic_exists(client, topic.name)


@DELETE_VERSIONS
def test_an_unknown_topic_cannot_be_deleted(client: RawClient, version: int) -> None:
    (result,) = delete_by_name(client, "no-such-topic", version=version)

    assert (result.name, result.error_code) == ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_unknown_id_cannot_be_deleted(client: RawClient) -> None:
    unknown = TopicId(b"\x07" * 16)

    (result,) = delete(client, DeleteTopicState(name=None, topic_id=unknown))

    assert (result.name, result.topic_id, result.error_code) == (
        None,
        unknown,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


def test_name_and_id_together_are_refused(client: RawClient, topic: Topic) -> None:
    (result,) = delete(client, DeleteTopicState(name=topic.name, topic_id=topic.id))

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert topic_exists(client, topic.name)


def test_neither_name_nor_id_is_refused(client: RawClient) -> None:
    (result,) = delete(client, DeleteTopicState(name=None, topic_id=NO_TOPIC_ID))

    assert result.error_code == ErrorCode.INVALID_REQUEST


@DELETE_VERSIONS
def test_a_topic_named_twice_is_not_deleted(client: RawClient, topic: Topic, version: int) -> None:
    results = delete_by_name(client, topic.name, topic.name, version=version)

    assert {r.error_code for r in results} == {ErrorCode.INVALID_REQUEST}
    assert topic_exists(client, topic.name)


@pytest.mark.parametrize("version", [1, 2, 3, 6])
def test_deletion_can_be_switched_off(version: int) -> None:
    with (
        broker(config={"delete.topic.enable": "false"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        (result,) = delete_by_name(client, topic.name, version=version)

        # Versions below 3 do not know the error that says so.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert result.error_code == disabled
        assert topic_exists(client, topic.name)


@DELETE_VERSIONS
def test_a_topic_named_twice_is_answered_once(client: RawClient, topic: Topic, version: int) -> None:
    for name in (topic.name, "no-such-topic"):
        (result,) = delete_by_name(client, name, name, version=version)

        assert (result.name, result.error_code) == (name, ErrorCode.INVALID_REQUEST)


def test_an_id_named_twice_is_answered_once(client: RawClient, topic: Topic) -> None:
    twice = [DeleteTopicState(name=None, topic_id=topic.id)] * 2

    (result,) = delete(client, *twice)

    assert (result.topic_id, result.error_code) == (topic.id, ErrorCode.INVALID_REQUEST)
    assert topic_exists(client, topic.name)


@pytest.mark.parametrize("name_first", [True, False])
def test_a_topic_named_by_its_name_and_by_its_id_stays(
    client: RawClient, topic: Topic, name_first: bool
) -> None:
    states = [DeleteTopicState(name=topic.name), DeleteTopicState(name=None, topic_id=topic.id)]

    (result,) = delete(client, *(states if name_first else reversed(states)))

    assert (result.name, result.topic_id) == (topic.name, topic.id)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert topic_exists(client, topic.name)


def test_each_topic_of_a_request_is_answered_by_itself(client: RawClient, topic: Topic) -> None:
    other = create_topic(client)
    states = [
        DeleteTopicState(name=topic.name),
        DeleteTopicState(name="no-such-topic"),
        DeleteTopicState(name=None, topic_id=NO_TOPIC_ID),
        DeleteTopicState(name=None, topic_id=other.id),
        DeleteTopicState(name=None, topic_id=NO_TOPIC_ID),
    ]

    results = delete(client, *states)

    assert sorted((str(r.name), r.error_code) for r in results) == sorted(
        [
            (topic.name, ErrorCode.NONE),
            ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("None", ErrorCode.INVALID_REQUEST),
            ("None", ErrorCode.INVALID_REQUEST),
            (other.name, ErrorCode.NONE),
        ]
    )
    assert not topic_exists(client, topic.name) and not topic_exists(client, other.name)
