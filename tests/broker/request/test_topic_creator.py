"""Topics that Metadata creates."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.storage.memory import MemoryFiles
from penstock.testing import broker
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.configs import TOPIC, shown
from tests.broker.conftest import penstock_only
from tests.broker.disks import on_disk
from tests.broker.events import Events
from tests.broker.handlers.metadata_requests import request_one
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic, new_name


@penstock_only  # Kafka answers with an error first, and the client retries
@pytest.mark.parametrize("version", [0, 1, 3])
def test_versions_without_the_field_create_topics(client: RawClient, version: int) -> None:
    found = request_one(client, version, new_name())

    assert (found.error_code, len(found.partitions)) == (ErrorCode.NONE, 1)


def test_internal_topics_are_made_as_their_coordinators_need_them() -> None:
    partitions = {"offsets.topic.num.partitions": "7", "transaction.state.log.num.partitions": "5"}
    with (
        broker(config=partitions) as running,
        RawClient(running.bootstrap) as client,
    ):
        offsets = request_one(client, 13, "__consumer_offsets", create=True)

        assert (offsets.error_code, len(offsets.partitions)) == (ErrorCode.NONE, 7)
        assert shown(client, TOPIC, "__consumer_offsets")["cleanup.policy"].value == "compact"
        state = request_one(client, 13, "__transaction_state", create=True)
        assert (state.error_code, state.is_internal, len(state.partitions)) == (ErrorCode.NONE, True, 5)
        found = request_one(client, 13, "__share_group_state", create=True)
        assert (found.error_code, found.is_internal, len(found.partitions)) == (ErrorCode.NONE, True, 50)


@penstock_only
@pytest.mark.parametrize("version", [4, 8, 9, 13])
def test_a_topic_is_created_on_request(client: RawClient, version: int) -> None:
    name = new_name()

    found = request_one(client, version, name, create=True)

    assert (found.error_code, found.name, len(found.partitions)) == (ErrorCode.NONE, name, 1)
    assert request_one(client, version, name).error_code == ErrorCode.NONE


def test_creation_uses_the_brokers_defaults() -> None:
    with (
        broker(config={"num.partitions": "4"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        assert len(request_one(client, 13, "made", create=True).partitions) == 4


@pytest.mark.parametrize("version", [0, 4, 13])
def test_nothing_is_created_where_the_broker_does_not_allow_it(version: int) -> None:
    with (
        broker(config={"auto.create.topics.enable": "false"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        found = request_one(client, version, "wished-for", create=True)

        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.call(METADATA, 12, MetadataRequest(topics=None)).topics == []


def test_a_topic_that_needs_more_brokers_is_unknown_until_they_are_there() -> None:
    """As in Kafka: after any other error librdkafka gives a topic up at once."""
    with (
        broker(config={"default.replication.factor": "2"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        found = request_one(client, 13, "wished-for", create=True)

        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_collide_are_not_created_by_mentioning_them() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        create_topic(client, "a.b")

        assert request_one(client, 13, "a_b", create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_two_clients_may_create_the_same_topic_at_once() -> None:
    with (
        broker() as running,
        RawClient(running.bootstrap) as one,
        RawClient(running.bootstrap) as two,
    ):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="both")])
        one.send(METADATA, 13, request)
        two.send(METADATA, 13, request)

        answers = [client.receive() for client in (one, two)]

    ids = set()
    for answer in answers:
        assert isinstance(answer, MetadataResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE
        ids.add(answer.topics[0].topic_id)
    assert len(ids) == 1


@penstock_only
def test_a_topic_with_more_replicas_than_brokers_is_not_created(events: Events) -> None:
    """Nor in part. With a factor of the cluster's size the next request creates it."""
    files = MemoryFiles()
    with on_disk(files, default_replication_factor="3") as running, RawClient(running.bootstrap) as client:
        topic = request_one(client, METADATA.max_version, "orders", create=True)
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "orders" not in running.broker.stages.cluster.image.topics
    ((level, fields),) = events.of("topic_not_created")
    assert (level, fields["topic"]) == ("warning", "orders")
    assert "3" in fields["reason"]
    with on_disk(files, default_replication_factor="1") as running, RawClient(running.bootstrap) as client:
        request_one(client, METADATA.max_version, "orders", create=True)
        assert "orders" in running.broker.stages.cluster.image.topics
