"""Fetch of clients: the fetch session, and the limits of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.fetch.client_fetch import ClientEnvironment, ClientFetch, FetchLimits
from penstock.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessions,
    WantedPartition,
    wanted_partitions,
)
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError
from penstock.replication.leader import LeaderState
from penstock.replication.selector import preferred_read_replica
from penstock.wire.apis.fetch import FetchRequest, FetchResponse

__all__ = ["ClientFetchHandler"]

_BY_TOPIC_ID: Final = 13
_READ_COMMITTED: Final = 1
_RACKS_FROM: Final = 11
#: Kafka's class for it, with or without its package
_RACK_AWARE: Final = "RackAwareReplicaSelector"
#: `FetchLimits(…)` without the call of a Python function, because every request builds one
_new_limits: Final = tuple.__new__


class ClientFetchHandler:
    """Answers the Fetch requests of clients."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        sessions: FetchSessions,
        environment: ClientEnvironment,
    ) -> None:
        self._config = config
        self._image = image
        self._sessions = sessions
        self._environment = environment
        self.new_fetch: Callable[..., ClientFetch] = ClientFetch

    def __call__(self, context: Context, request: FetchRequest) -> Any:
        """The response, or a Deferred of it."""
        by_id = context.version >= _BY_TOPIC_ID
        sessions = self._sessions
        session: FetchSession | None = None
        incremental = False
        if request.session_epoch == FINAL_EPOCH:
            sessions.close(request.session_id)
        elif request.session_epoch == INITIAL_EPOCH:
            session = sessions.start(request, by_id)
        else:
            try:
                session = sessions.resume(request, by_id)
            except ApiError as e:
                return FetchResponse(error_code=e.code)
            incremental = session is not None
        if session is not None:
            wanted: Sequence[WantedPartition] = list(session.partitions.values())
        else:
            wanted = list(wanted_partitions(request, by_id))
        limits = self.limits(context, request)
        fetch = self.new_fetch(context, self._environment, wanted, limits, session, incremental)
        return fetch.run(request.min_bytes, request.max_wait_ms)

    def answer_now(self, context: Context, request: FetchRequest) -> Any:
        """The response to a request without a session, with the bytes that there are, or a Deferred of it."""
        wanted = list(wanted_partitions(request, context.version >= _BY_TOPIC_ID))
        limits = self.limits(context, request)
        return ClientFetch(context, self._environment, wanted, limits).answer_now()

    def limits(self, context: Context, request: FetchRequest) -> FetchLimits:
        limits = (
            min(request.max_bytes, self._config.fetch_max_bytes),
            request.isolation_level == _READ_COMMITTED,
            context.version < _RACKS_FROM,
            self._nearest(request.rack_id) if request.rack_id else None,
        )
        return _new_limits(FetchLimits, limits)

    def _nearest(self, rack: str) -> Callable[[LeaderState, int], int | None] | None:
        """Finds the replica in a client's rack; None if this broker does not select replicas by rack."""
        selector = self._config.replica_selector_class
        if selector is None or not selector.endswith(_RACK_AWARE):
            return None
        brokers = self._image.brokers

        def rack_of(node: int) -> str | None:
            known = brokers.get(node)
            return known.rack if known is not None and not known.fenced else None

        return lambda leader, offset: preferred_read_replica(leader, rack, offset, rack_of)
