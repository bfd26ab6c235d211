"""Fetch on the internal listener: of followers, of the metadata quorum, and of nodes that only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.fetch.replica_fetch import ReplicaEnvironment, ReplicaFetch
from penstock.broker.replica.sessions import FULL, NO_SESSION, ReplicaSessions
from penstock.model.errors import ApiError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.wire.apis.fetch import FetchRequest, FetchResponse, names_replica

__all__ = ["InternalFetchHandler", "ReplicaFetchHandler"]


class ReplicaFetchHandler:
    """Answers the Fetch requests of followers."""

    def __init__(self, sessions: ReplicaSessions, environment: ReplicaEnvironment) -> None:
        self._sessions = sessions
        self._environment = environment

    def __call__(self, context: Context, request: FetchRequest) -> Any:
        """The response, (writer, content), or a Deferred of either."""
        try:
            session = self._sessions.take(request, int(self._environment.clock.monotonic() * 1000))
        except ApiError as e:
            return FetchResponse(error_code=e.code)
        if not request.max_bytes:
            # A request without bytes only ends the waiting fetch of its session.
            return FetchResponse(session_id=session.id)
        # A full request that names partitions is answered at once.
        is_full = request.session_epoch == FULL and bool(session.ready)
        may_wait = session.id != NO_SESSION and not is_full
        fetch = ReplicaFetch(context, self._environment, session, request)
        return fetch.run(request.min_bytes, request.max_wait_ms if may_wait else 0)


class InternalFetchHandler:
    """Routes a Fetch of the internal listener by its topic and by the replica that it names.

    A node that names no replica reads as a client: committed records, from any replica.
    """

    def __init__(
        self,
        quorum: Callable[[Context, Any], Any],
        replica: ReplicaFetchHandler,
        client: Callable[[Context, FetchRequest], Any],
    ) -> None:
        self._quorum = quorum
        self._replica = replica
        self._client = client

    def __call__(self, context: Context, request: FetchRequest) -> Any:
        for topic in request.topics[:1]:
            if topic.topic_id == METADATA_TOPIC_ID or topic.topic == METADATA_TOPIC:
                return self._quorum(context, request)
        if names_replica(request):
            return self._replica(context, request)
        return self._client(context, request)
