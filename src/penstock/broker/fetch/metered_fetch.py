"""The fetch of a client with a quota: a throttled response is empty (KIP-219)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.broker.base.metering import MeteredContext
from penstock.broker.fetch.client_fetch import ClientEnvironment, ClientFetch, ClientRead, FetchLimits
from penstock.broker.fetch.sessions import FetchSession, WantedPartition
from penstock.wire.apis.fetch import FetchResponse

__all__ = ["MeteredFetch"]


class MeteredFetch(ClientFetch):
    """One Fetch request of a client that has a quota."""

    __slots__ = ("_close_session",)

    context: MeteredContext

    def __init__(
        self,
        close_session: Callable[[int], None],
        context: MeteredContext,
        environment: ClientEnvironment,
        wanted: Sequence[WantedPartition],
        limits: FetchLimits,
        session: FetchSession | None = None,
        incremental: bool = False,
    ) -> None:
        super().__init__(context, environment, wanted, limits, session, incremental)
        self._close_session = close_session

    def respond(self, read: ClientRead) -> FetchResponse:
        throttle_ms = self.context.meter.charge_fetch(read.size)
        if not throttle_ms:
            return super().respond(read)
        # The fetch session stays as it is, so the next response has everything that this one leaves out.
        session = self._session
        if session is not None and not self._incremental:
            # Like Kafka: a full request that is throttled starts no session.
            self._close_session(session.id)
            session = None
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=0 if session is None else session.id)
