"""Fetch of clients: the fetch session, and the limits of the pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.fetch.client_fetch import ClientEnvironment, ClientFetch
from penstock.broker.fetch.large_fetch import LARGE, LargeFetch, encoded
from penstock.broker.fetch.partition_read import FetchLimits
from penstock.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    OWNER_PARTITIONS,
    FetchSession,
    FetchSessions,
    WantedPartition,
    pieces,
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
        #: partitions of the large fetches that are under way, by client
        self._waiting: Counter[Hashable] = Counter()

    def __call__(self, context: Context, request: FetchRequest) -> Any:
        """The response, or a Deferred of it."""
        if context.meter is not None:
            most = context.meter.fetch_bytes_max
            if most is not None:
                # Like Kafka: a larger response would always be throttled, so the consumer would not proceed.
                request.max_bytes = min(request.max_bytes, most)
                request.min_bytes = min(request.min_bytes, request.max_bytes)
        if context.is_large:
            return context.spawn(self._serve_large(context, request))
        by_id = context.version >= _BY_TOPIC_ID
        sessions = self._sessions
        session: FetchSession | None = None
        incremental = False
        if request.session_epoch == FINAL_EPOCH:
            sessions.close(request.session_id)
        elif request.session_epoch == INITIAL_EPOCH:
            session = sessions.start(request, by_id, context.connection.owner)
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
        fetch = ClientFetch(context, self._environment, wanted, limits, session, incremental)
        if len(wanted) > LARGE:
            return context.spawn(self._run_large(fetch, wanted, request))
        return fetch.run(request.min_bytes, request.max_wait_ms)

    async def _serve_large(self, context: Context, request: FetchRequest) -> Any:
        """A request that names many partitions."""
        try:
            wanted, session = await context.until_done(self._changed(context, request))
        except ApiError as e:
            return FetchResponse(error_code=e.code)
        limits = self.limits(context, request)
        incremental = session is not None and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        fetch = ClientFetch(context, self._environment, wanted, limits, session, incremental)
        return await self._run_large(fetch, wanted, request)

    def _changed(
        self, context: Context, request: FetchRequest
    ) -> Generator[None, None, tuple[Sequence[WantedPartition], FetchSession | None]]:
        """The partitions to fetch, and the session after the changes of the request."""
        by_id, sessions = context.version >= _BY_TOPIC_ID, self._sessions
        session: FetchSession | None = None
        if request.session_epoch == FINAL_EPOCH:
            sessions.close(request.session_id)
        elif request.session_epoch == INITIAL_EPOCH:
            session = sessions.open(request, by_id, context.connection.owner)
        else:
            session = sessions.find(request, by_id)
        wanted: list[WantedPartition] = []
        for piece in pieces(request):
            if session is None:
                wanted += wanted_partitions(piece, by_id)
            else:
                sessions.change(session, piece)
            yield
        if session is None:
            return wanted, None
        if not session.partitions:
            sessions.close(session.id)
            return (), None
        return list(session.partitions.values()), session

    async def _run_large(
        self, fetch: ClientFetch, wanted: Sequence[WantedPartition], request: FetchRequest
    ) -> Any:
        """A fetch waits only while those of its client that wait have few partitions: each takes memory."""
        if not wanted:
            return FetchResponse()
        waiting, owner = self._waiting, fetch.context.connection.owner
        waiting[owner] += len(wanted)
        max_wait_ms = request.max_wait_ms if waiting[owner] <= OWNER_PARTITIONS else 0
        try:
            response = await LargeFetch(fetch, wanted).run(request.min_bytes, max_wait_ms)
        finally:
            waiting[owner] -= len(wanted)
            if not waiting[owner]:
                del waiting[owner]
        return await encoded(fetch.context, response)

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
