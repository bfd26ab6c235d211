"""The requests of a replica fetcher.

A fetcher that keeps up sends the same request again and again, with new positions only. Such a request is
written from a template (`ReplicaFetchTemplate`), which holds for one session and one broker epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from penstock.broker.base import repeated
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicId
from penstock.net.calls import Call, Landing
from penstock.net.client import Peer
from penstock.replication.fetch_plan import PartitionKey, PlannedFetch
from penstock.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from penstock.wire.repeated_replica_fetch import MOST, ReplicaFetchTemplate
from penstock.wire.replica_fetch import REPLICA_FETCH

__all__ = ["ReplicaFetchRequests"]


class ReplicaFetchRequests:
    """Sends the requests of one fetcher, one after the other."""

    __slots__ = ("_broker_epoch", "_call", "_config", "_template", "_template_of")

    def __init__(self, config: BrokerConfig, broker_epoch: Callable[[], int]) -> None:
        self._config = config
        self._broker_epoch = broker_epoch
        #: the last request that was not written from the template
        self._call: Call | None = None
        self._template: ReplicaFetchTemplate | None = None
        #: the session and the broker epoch of the template
        self._template_of = (0, 0)

    @property
    def timeout_s(self) -> float:
        return self._config.replica_socket_timeout_ms / 1000

    def post(self, peer: Peer, planned: PlannedFetch, wake_in_ms: int | None, landing: Landing) -> None:
        """Send a request. The leader may wait for bytes until `wake_in_ms`, None for its longest wait."""
        if wake_in_ms is None and self._template is not None and self._repeat(peer, planned):
            return
        request = self.request(planned, wake_in_ms)
        self._call = peer.post(REPLICA_FETCH, request, self.timeout_s, landing)
        if wake_in_ms is None and planned.session_epoch and repeated.ENABLED:
            version = peer.speaks(REPLICA_FETCH)
            self._template = ReplicaFetchTemplate.of(version, peer.client_id, request)
            self._template_of = (planned.session_id, self._broker_epoch())

    def forget(self) -> None:
        """Drop the template after an error: the next request may go to another broker."""
        self._template = None

    def _repeat(self, peer: Peer, planned: PlannedFetch) -> bool:
        """Send a request from the template; returns false if it does not fit."""
        session_id, session_epoch, partitions, forgotten = planned
        template = self._template
        if (
            template is None
            or forgotten
            or not 0 < len(partitions) <= MOST
            or self._template_of != (session_id, self._broker_epoch())
        ):
            return False
        most = self._config.replica_fetch_max_bytes
        topic_id, _ = next(iter(partitions))
        fields: list[Any] = [session_epoch, 2, topic_id, len(partitions) + 1]
        for (of_topic, index), (offset, last_fetched_epoch, leader_epoch, start) in partitions.items():
            if of_topic != topic_id:
                return False
            fields += (index, leader_epoch, offset, last_fetched_epoch, start, most, 0)
        # A template is made after its call, so the call is there.
        return peer.repeat(self._call, template.write, fields)  # type: ignore[arg-type]

    def request(self, planned: PlannedFetch, wake_in_ms: int | None) -> FetchRequest:
        """The planned request, as the tables have it."""
        config = self._config
        longest_ms = config.replica_fetch_wait_max_ms
        node_id = config.node_id
        request = FetchRequest(
            replica_id=node_id,
            replica_state=ReplicaState(replica_id=node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=longest_ms if wake_in_ms is None else max(0, min(longest_ms, wake_in_ms)),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=planned.session_id,
            session_epoch=planned.session_epoch,
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[index for _, index in keys])
                for topic_id, keys in groupby(planned.forgotten, _topic_id)
            ],
        )
        for topic_id, keys in groupby(planned.partitions, _topic_id):
            topic = FetchTopic(topic_id=topic_id)
            for key in keys:
                position = planned.partitions[key]
                topic.partitions.append(
                    FetchPartition(
                        partition=key[1],
                        current_leader_epoch=position.leader_epoch,
                        fetch_offset=position.fetch_offset,
                        last_fetched_epoch=position.last_fetched_epoch,
                        log_start_offset=position.log_start_offset,
                        partition_max_bytes=config.replica_fetch_max_bytes,
                    )
                )
            request.topics.append(topic)
        return request


def _topic_id(key: PartitionKey) -> TopicId:
    return key[0]
