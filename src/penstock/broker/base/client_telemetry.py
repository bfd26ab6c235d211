"""The metrics that clients push to this broker (KIP-714): clients that may push, totals, receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.model.config import compile_client_pattern
from penstock.observability.client_telemetry import ClientAggregates, ClientInstances, subscriptions_of

__all__ = ["ClientTelemetry"]


class ClientTelemetry:
    """Owned by the event loop's thread."""

    def __init__(self, token: Callable[[int], bytes]) -> None:
        self.instances = ClientInstances(token)
        self.aggregates = ClientAggregates()
        #: PushTelemetry requests by the name of their error code
        self.pushes: dict[str, int] = {}
        #: takes complete ExportMetricsServiceRequests; None if they are not exported
        self.export: Callable[[bytes], None] | None = None

    def update(self, configs: Iterable[Mapping[str, str]]) -> None:
        """Take over the subscriptions of the cluster."""
        self.instances.update(subscriptions_of(configs, compile_client_pattern))
