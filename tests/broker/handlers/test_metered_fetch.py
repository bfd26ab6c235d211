"""Fetches of clients that have a quota."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.metered_clients import assert_muted, produce, quota
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, new_name


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


def fetch(
    client: RawClient, topic: Topic, offset: int = 0, session: tuple[int, int] = (0, -1)
) -> FetchResponse:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    named = [FetchTopic(topic_id=topic.id, partitions=[partition])]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[] if session[1] > 0 else named,
    )
    return client.call(FETCH, 16, request)


def test_a_throttled_fetch_is_empty_and_loses_nothing(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    for _ in range(2):
        produce(admin, topic, 5050)
    with quota(admin, limited, "consumer_byte_rate", 1000):
        # A response may have what ten windows allow, which is one of the batches.
        first = fetch(limited, topic)
        assert first.throttle_time_ms == 0
        assert len(first.responses[0].partitions[0].records or b"") < 10_000
        began = monotonic()
        throttled = fetch(limited, topic, 1)
        assert throttled.throttle_time_ms > 0
        assert (throttled.error_code, throttled.responses) == (ErrorCode.NONE, [])
        assert_muted(limited, began, throttled.throttle_time_ms)


def test_a_throttled_fetch_session_goes_on(admin: RawClient, limited: RawClient) -> None:
    topic = create_topic(admin)
    with quota(admin, limited, "consumer_byte_rate", 1000):
        started = fetch(limited, topic, session=(0, 0))
        assert started.session_id
        produce(admin, topic, 10_300)
        throttled = fetch(limited, topic, session=(started.session_id, 1))
        assert throttled.throttle_time_ms > 0 and not throttled.responses
        assert throttled.session_id == started.session_id
    late = fetch(limited, topic, session=(started.session_id, 2))
    assert late.error_code == ErrorCode.NONE
    assert late.responses[0].partitions[0].high_watermark == 1


def test_a_throttled_full_fetch_starts_no_session(
    running: BrokerThread, admin: RawClient, limited: RawClient
) -> None:
    topic = create_topic(admin)
    produce(admin, topic, 10_300)
    before = len(running.broker.serving.routes.fetch_sessions)
    with quota(admin, limited, "consumer_byte_rate", 1000):
        throttled = fetch(limited, topic, session=(0, 0))
        assert throttled.throttle_time_ms > 0 and throttled.session_id == 0
    assert len(running.broker.serving.routes.fetch_sessions) == before
