"""The requests of a replica fetcher."""

from __future__ import annotations

from penstock.broker.replica.fetch_requests import ReplicaFetchRequests
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicId
from penstock.replication.fetch_plan import PlannedFetch
from penstock.replication.follower import FetchPosition

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)


def test_a_request_has_the_planned_positions_by_topic() -> None:
    config = BrokerConfig({"node.id": "3", "replica.fetch.wait.max.ms": "400"})
    requests = ReplicaFetchRequests(config, lambda: 11)
    planned = PlannedFetch(
        5,
        2,
        {(A, 0): FetchPosition(10, 1, 4, 0), (B, 7): FetchPosition(20, 2, 6, 3)},
        [(A, 1), (A, 2), (B, 0)],
    )
    request = requests.request(planned, None)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (3, 11)
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (5, 2, 400)
    assert [(t.topic_id, [p.partition for p in t.partitions]) for t in request.topics] == [(A, [0]), (B, [7])]
    (last,) = request.topics[1].partitions
    assert (last.fetch_offset, last.last_fetched_epoch, last.current_leader_epoch) == (20, 2, 6)
    assert last.log_start_offset == 3
    forgotten = [(t.topic_id, list(t.partitions)) for t in request.forgotten_topics_data]
    assert forgotten == [(A, [1, 2]), (B, [0])]


def test_the_wait_ends_when_a_partition_ends_its_pause() -> None:
    requests = ReplicaFetchRequests(BrokerConfig({"replica.fetch.wait.max.ms": "400"}), lambda: 0)
    planned = PlannedFetch(0, 0, {}, [])
    assert requests.request(planned, 30).max_wait_ms == 30
    assert requests.request(planned, 3000).max_wait_ms == 400
    assert requests.request(planned, -5).max_wait_ms == 0
