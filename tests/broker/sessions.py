"""A client of incremental fetch sessions."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchResponse, ForgottenTopic, PartitionData
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, fetch_request

__all__ = ["SessionClient"]


class SessionClient:
    """Goes through a session's epochs as a client does."""

    def __init__(self, client: RawClient, version: int) -> None:
        self._client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self, *wanted: tuple[Topic, int, int], forget: tuple[Topic, int] | None = None, max_wait_ms: int = 0
    ) -> dict[int, PartitionData]:
        """One request of (topic, partition, offset); the answered partitions by index."""
        response = self.call(*wanted, forget=forget, max_wait_ms=max_wait_ms)
        assert response.error_code == ErrorCode.NONE
        assert self.id in (0, response.session_id)
        self.id = response.session_id
        self.epoch += 1
        return {p.partition_index: p for topic in response.responses for p in topic.partitions}

    def call(
        self, *wanted: tuple[Topic, int, int], forget: tuple[Topic, int] | None = None, max_wait_ms: int = 0
    ) -> FetchResponse:
        topics = [
            (topic, [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)])
            for topic, index, offset in wanted
        ]
        request = fetch_request(
            topics,
            version=self.version,
            session_id=self.id,
            session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
        )
        if forget is not None:
            topic, index = forget
            request.forgotten_topics_data = [
                ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[index])
            ]
        return self._client.call(FETCH, self.version, request)
