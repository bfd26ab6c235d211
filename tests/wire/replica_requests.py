"""Fetch requests of followers, as tuples that tests can vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

__all__ = ["Position", "ReplicaRequest"]

#: (topic id, partition, leader epoch, fetch offset, last fetched epoch, log start offset, most bytes)
Position = tuple[TopicId, int, int, int, int, int, int]


class ReplicaRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    replica: int
    broker_epoch: int
    positions: Sequence[Position]
    forgotten: Sequence[tuple[TopicId, int]] = ()

    def message(self) -> FetchRequest:
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            replica_id=self.replica,
            replica_state=ReplicaState(replica_id=self.replica, replica_epoch=self.broker_epoch),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in self.forgotten
            ],
        )
        for topic_id, index, leader_epoch, offset, last_epoch, start, most in self.positions:
            if not request.topics or request.topics[-1].topic_id != topic_id:
                request.topics.append(FetchTopic(topic_id=topic_id))
            request.topics[-1].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=start,
                    partition_max_bytes=most,
                )
            )
        return request
