"""Fetches of many partitions: computed in slices, with the same answers as others."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from penstock.broker.fetch.large_fetch import LARGE
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.metered_clients import quota
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, create_topic, fetch_request, values_in, wanted
from tests.broker.sessions import SessionClient
from tests.broker.stalls import assert_brief, assert_linear, cpu
from tests.waiting import eventually

_PARTITIONS = LARGE + 200
_DENIED = 20_000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={**CONFIG, "num.partitions": "1"}) as found:
        yield found


@pytest.fixture(scope="module")
def admin(running: BrokerThread) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected


@pytest.fixture(scope="module")
def topic(admin: Admin) -> Topic:
    return create_topic(admin, partitions=_PARTITIONS)


@pytest.fixture
def client(running: BrokerThread, admin: Admin) -> Iterator[RawClient]:
    """A client that may do nothing."""
    with RawClient(running.bootstrap, timeout_s=60) as connected:
        yield connected


def _everything(topic: Topic) -> list[tuple[Topic, int, int]]:
    return [(topic, index, 0) for index in range(_PARTITIONS)]


@pytest.mark.parametrize("version", [12, 18])
def test_a_large_session_answers_changed_partitions(admin: Admin, version: int) -> None:
    topic = create_topic(admin, partitions=_PARTITIONS)
    session = SessionClient(admin, version)
    assert set(session.fetch(*_everything(topic))) == set(range(_PARTITIONS))
    assert session.id > 0
    assert session.fetch() == {}
    append(admin, topic, b"news", partition=LARGE + 7)
    answers = session.fetch()
    assert set(answers) == {LARGE + 7}
    assert values_in(answers[LARGE + 7]) == [b"news"]


def test_a_large_fetch_without_a_session(admin: Admin, topic: Topic) -> None:
    append(admin, topic, b"first", partition=3)
    partitions = [wanted(0, index) for index in range(_PARTITIONS)]
    response = admin.call(FETCH, 12, fetch_request([(topic, partitions)], version=12))
    (answer,) = response.responses
    assert [each.partition_index for each in answer.partitions] == list(range(_PARTITIONS))
    assert values_in(answer.partitions[3])[0] == b"first"


def test_a_large_fetch_keeps_to_its_limit(admin: Admin) -> None:
    """At least one batch, and no more than the limit of the whole request."""
    topic = create_topic(admin, partitions=_PARTITIONS)
    for index in (5, LARGE // 2, LARGE + 5):
        append(admin, topic, b"x" * 500, partition=index)
    partitions = [wanted(0, index) for index in range(_PARTITIONS)]
    response = admin.call(FETCH, 12, fetch_request([(topic, partitions)], version=12, max_bytes=1))
    filled = [each.partition_index for each in response.responses[0].partitions if each.records]
    assert filled == [5]


def test_a_large_fetch_waits_for_records(running: BrokerThread, admin: Admin) -> None:
    topic = create_topic(admin, partitions=_PARTITIONS)
    partitions = [wanted(0, index) for index in range(_PARTITIONS)]
    request = fetch_request([(topic, partitions)], version=12, max_wait_ms=20_000)
    found: list[FetchResponse] = []
    with Admin(running.bootstrap) as waiting:
        thread = Thread(target=lambda: found.append(waiting.call(FETCH, 12, request)))
        thread.start()
        append(admin, topic, b"awaited", partition=LARGE + 9)
        thread.join(15)
    filled = [each for each in found[0].responses[0].partitions if each.records]
    assert [each.partition_index for each in filled] == [LARGE + 9]


def test_a_large_fetch_is_answered_at_its_timeout(admin: Admin) -> None:
    topic = create_topic(admin, partitions=_PARTITIONS)
    partitions = [wanted(0, index) for index in range(_PARTITIONS)]
    request = fetch_request([(topic, partitions)], version=12, max_wait_ms=50)
    response = admin.call(FETCH, 12, request)
    assert len(response.responses[0].partitions) == _PARTITIONS


def test_a_large_fetch_of_a_client_with_a_quota(running: BrokerThread, admin: Admin, topic: Topic) -> None:
    partitions = [wanted(0, index) for index in range(_PARTITIONS)]
    request = fetch_request([(topic, partitions)], version=12)
    with Admin(running.bootstrap) as limited, quota(admin, limited, "request_percentage", 100.0):
        (answer,) = limited.call(FETCH, 12, request).responses
        assert len(answer.partitions) == _PARTITIONS


def _denied(number: int) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[FetchTopic(topic=f"denied-{i}", partitions=[partition]) for i in range(number)],
    )


class Incremental:
    """A session of denied partitions, of which each request is 41 bytes long."""

    def __init__(self, client: RawClient, number: int) -> None:
        self._client = client
        response = client.call(FETCH, 12, _denied(number))
        assert response.session_id > 0
        assert len(response.responses) == number
        self._id, self._epoch = response.session_id, 0

    def fetch(self) -> FetchResponse:
        self._epoch += 1
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=self._id, session_epoch=self._epoch
        )
        return self._client.call(FETCH, 12, request)

    def end(self) -> None:
        """A client has a bound of partitions in sessions, which repeated measurements would reach."""
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=self._id, session_epoch=-1
        )
        assert self._client.call(FETCH, 12, request).session_id == 0


def test_a_session_of_denied_partitions_does_not_hold_the_loop(
    running: BrokerThread, client: RawClient
) -> None:
    session = Incremental(client, _DENIED)
    assert_brief(running, session.fetch)
    response = session.fetch()
    session.end()
    codes = {partition.error_code for each in response.responses for partition in each.partitions}
    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_the_start_of_such_a_session_does_not_hold_the_loop(running: BrokerThread, client: RawClient) -> None:
    assert_brief(running, lambda: Incremental(client, _DENIED).end())


def test_the_cost_of_a_large_session_is_linear(running: BrokerThread, client: RawClient) -> None:
    def cost(number: int) -> float:
        session = Incremental(client, number)
        spent_s = cpu(running, session.fetch)
        session.end()
        return spent_s

    assert_linear(cost, _DENIED)


def test_large_fetches_of_one_client_wait_with_a_limited_number_of_partitions(
    running: BrokerThread, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch without a session may name a million partitions, on each connection of a client."""
    monkeypatch.setattr("penstock.broker.handlers.fetch.OWNER_PARTITIONS", 2 * _PARTITIONS)
    topic = create_topic(admin)
    request = fetch_request([(topic, [wanted(0, 0)] * _PARTITIONS)], version=12)
    request.min_bytes, request.max_wait_ms = 1, 60_000
    waiting = [Admin(running.bootstrap) for _ in range(2)]
    try:
        for each in waiting:
            each.send(FETCH, 12, request)
        partition = running.broker.stages.storage.partitions.find(topic.name, 0)
        assert not isinstance(partition, ErrorCode)
        eventually(lambda: len(partition.readers) == len(waiting))
        response = admin.call(FETCH, 12, request)
        assert len(response.responses[0].partitions) == _PARTITIONS
        append(admin, topic, b"news")
        for each in waiting:
            found = each.receive()
            assert isinstance(found, FetchResponse)
            assert values_in(found.responses[0].partitions[0]) == [b"news"]
    finally:
        for each in waiting:
            each.close()
