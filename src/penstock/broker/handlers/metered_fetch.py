"""Fetch of clients that have a quota."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.base.metering import MeteredContext
from penstock.broker.fetch.client_fetch import ClientEnvironment
from penstock.broker.fetch.metered_fetch import MeteredFetch
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.handlers.fetch import ClientFetchHandler
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.wire.apis.fetch import FetchRequest

__all__ = ["MeteredFetchHandler"]


class MeteredFetchHandler(ClientFetchHandler):
    """Answers the Fetch requests of clients that have a quota."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        sessions: FetchSessions,
        environment: ClientEnvironment,
    ) -> None:
        super().__init__(config, image, sessions, environment)
        self.new_fetch = partial(MeteredFetch, sessions.close)

    def __call__(self, context: Context, request: FetchRequest) -> Any:
        assert isinstance(context, MeteredContext)
        most = context.meter.fetch_bytes_max
        if most is not None:
            # Like Kafka: a larger response would be throttled for ever, and the consumer would not proceed.
            request.max_bytes = min(request.max_bytes, most)
            request.min_bytes = min(request.min_bytes, request.max_bytes)
        return super().__call__(context, request)
