"""Client quotas at a running broker: throttle times, muted connections, empty fetches.

See KIP-13, KIP-124, KIP-219 and KIP-599.

Throttle times are lower bounds, so a slow machine changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.metered_clients import _TIMER_S, alter, assert_muted, produce, quota
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, create_topic, new_name
from tests.broker.share_groups import Member, set_group_configs


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker() as found:
        yield found


@pytest.fixture
def admin(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap, client_id="admin") as connected:
        yield connected


@pytest.fixture
def limited(running: BrokerThread) -> Iterator[RawClient]:
    """A client whose id no other test has."""
    with RawClient(running.bootstrap, client_id=new_name("limited")) as connected:
        yield connected


def test_without_quotas_requests_take_the_plain_path(
    running: BrokerThread, admin: RawClient, limited: RawClient
) -> None:
    dispatcher = running.broker.serving.dispatcher
    before = dispatcher._metering
    with quota(admin, limited, "producer_byte_rate", 1e9):
        during = dispatcher._metering
    assert (before, dispatcher._metering) == (None, None)
    assert during is not None


@pytest.mark.parametrize("version", [3, 7, 9, PRODUCE.max_version])
def test_a_producer_is_answered_at_once_and_muted(admin: RawClient, limited: RawClient, version: int) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "producer_byte_rate", 1000):
        began = monotonic()
        response = produce(limited, topic, 10_100, version=version)
        assert response is not None
        (answer,) = response.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert 100 <= response.throttle_time_ms <= 300
        assert_muted(limited, began, response.throttle_time_ms)


def test_a_producer_without_acks_is_muted(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "producer_byte_rate", 1000):
        began = monotonic()
        produce(limited, topic, 10_100, acks=0)
        assert_muted(limited, began, 100)


def test_pipelined_requests_wait_for_the_end_of_the_throttle(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "producer_byte_rate", 1000):
        data = PartitionProduceData(index=0, records=memoryview(batch_of([b"x" * 10_100])))
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic.name, partition_data=[data])]
        )
        began = monotonic()
        limited.send(PRODUCE, 7, request)
        limited.send(API_VERSIONS, 0, ApiVersionsRequest())
        response = limited.receive()
        assert isinstance(response, ProduceResponse) and response.throttle_time_ms
        limited.receive()
        assert monotonic() - began >= response.throttle_time_ms / 1000 - _TIMER_S


def test_other_clients_are_not_throttled(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "producer_byte_rate", 1000):
        response = produce(admin, topic, 50_000)
        assert response is not None and response.throttle_time_ms == 0


def test_a_throttled_share_fetch_has_its_records(admin: RawClient, limited: RawClient) -> None:
    """They are acquired: an empty response would keep them from all members until the lock expires."""
    topic, group = create_topic(admin), new_name("group")
    set_group_configs(admin, group, share_auto_offset_reset="earliest")
    produce(admin, topic, 20_600)
    member = Member(limited, group, topic).join()
    with quota(admin, limited, "consumer_byte_rate", 1000):
        response, data = member.fetch(max_wait_ms=5000)
        while data is None or not data.acquired_records:
            response, data = member.fetch(max_wait_ms=5000)
        assert response.throttle_time_ms > 0


def test_the_time_of_requests_is_limited(admin: RawClient, limited: RawClient) -> None:
    with quota(admin, limited, "request_percentage", 1e-6):
        began = monotonic()
        response = limited.call(METADATA, 12, MetadataRequest(topics=None))
        # At most one window, as in Kafka.
        assert response.throttle_time_ms == 1000
        assert_muted(limited, began, 1000)


def test_a_quota_can_be_removed_while_its_client_is_muted(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "producer_byte_rate", 1000):
        produce(limited, topic, 10_300)
    response = produce(limited, topic, 10_300)
    assert response is not None and response.throttle_time_ms == 0


def test_controller_mutations_beyond_the_quota_are_refused(admin: RawClient, limited: RawClient) -> None:
    """The bucket has 11 tokens. The first topic takes more, and the debt lasts for hours."""
    topics = [CreatableTopic(name=new_name(), num_partitions=n, replication_factor=1) for n in (12, 1)]
    alone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topics[0].name)], timeout_ms=10_000)
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topics[0].name, count=13, assignments=None)], timeout_ms=10_000
    )
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with quota(admin, limited, "controller_mutation_rate", 1):
        created = limited.call(CREATE_TOPICS, 6, CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE, refused]
        assert 0 < created.throttle_time_ms <= 1000
        alter(admin, limited.client_id, "controller_mutation_rate", 1e-5)
        # The connection is muted, another one of the same client is not.
        with RawClient(limited.address, client_id=limited.client_id) as other:
            assert other.call(CREATE_PARTITIONS, 3, grown).results[0].error_code == refused
        with RawClient(limited.address, client_id=limited.client_id) as other:
            assert other.call(DELETE_TOPICS, 6, alone).responses[0].error_code == refused
        assert admin.call(DELETE_TOPICS, 6, alone).responses[0].error_code == ErrorCode.NONE


def test_old_clients_are_throttled_without_an_error(admin: RawClient, limited: RawClient) -> None:
    topic = CreatableTopic(name=new_name(), num_partitions=12, replication_factor=1)
    with quota(admin, limited, "controller_mutation_rate", 1):
        created = limited.call(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        assert 0 < created.throttle_time_ms <= 1000
