"""The last stage of a broker: what serves its ports, and what follows the metadata from all stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker.app.busy_watch import BusyWatch, busy_watch_of
from penstock.broker.app.dispatchers import (
    client_dispatcher,
    internal_dispatcher,
    metered_requests,
    monitor_of,
    monotonic_ms_of,
)
from penstock.broker.app.health import BrokerHealth, sources_of
from penstock.broker.app.metadata_changes import MetadataChanges
from penstock.broker.app.routes import Routes
from penstock.broker.app.stages import Stages
from penstock.broker.app.tracing import Tracing, new_watch
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.mutation_quotas import MutationQuotas
from penstock.broker.request.dispatch import Dispatcher
from penstock.broker.request.internal_listener import windows_of
from penstock.quotas.clients import ClientQuotas
from penstock.quotas.rates import Windows

if TYPE_CHECKING:
    from penstock.broker.monitoring.monitor import Monitor

__all__ = ["Serving", "compose_serving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What serves the requests of a broker, measures them, and shows how the broker is."""

    #: the handlers
    routes: Routes
    quotas: ClientQuotas
    #: of the listeners for clients
    dispatcher: Dispatcher
    #: of the listener for other nodes; None if there is none
    internal_dispatcher: Dispatcher | None
    tracing: Tracing
    health: BrokerHealth
    #: the monitoring port, if the configs have one
    monitor: Monitor | None
    #: None in a process with other work than a broker's
    busy: BusyWatch | None
    changes: MetadataChanges
    client_telemetry: ClientTelemetry


def compose_serving(stages: Stages, *, is_process: bool) -> Serving:
    """Compose the stage; InvalidConfig if the TLS configs of the monitoring port are incomplete.

    `is_process` is true if the broker is a process of its own.
    """
    config, world, metrics = stages.config, stages.world, stages.storage.metrics
    client_telemetry = ClientTelemetry(world.rng.token)
    health = BrokerHealth(sources_of(stages, client_telemetry))
    quotas = ClientQuotas(
        windows_of(config),
        Windows(config.controller_quota_window_num, 1000 * config.controller_quota_window_size_seconds),
    )
    routes = Routes(stages, health, _mutation_quotas(stages, quotas), client_telemetry)
    watch = new_watch(world.clock, stages.storage.partitions.find, stages.cluster.image)
    plain = client_dispatcher(stages, routes, watch)
    dispatchers, metered = [plain], [metered_requests(stages, plain, quotas)]
    internal = None
    if stages.listening.internal is not None:
        internal = internal_dispatcher(stages, routes, watch)
        dispatchers.append(internal)
        # Only nodes have no quotas: a certificate of their authority opens this listener, too.
        metered.append(metered_requests(stages, internal, quotas, stages.listening.is_node))
    tracing = Tracing(config, world, metrics, client_telemetry, watch, dispatchers)
    return Serving(
        routes=routes,
        quotas=quotas,
        dispatcher=plain,
        internal_dispatcher=internal,
        tracing=tracing,
        health=health,
        monitor=monitor_of(stages, health, is_process),
        busy=busy_watch_of(config) if is_process else None,
        changes=MetadataChanges(stages, metered, tracing, client_telemetry),
        client_telemetry=client_telemetry,
    )


def _mutation_quotas(stages: Stages, quotas: ClientQuotas) -> MutationQuotas:
    image, listening = stages.cluster.image, stages.listening
    return MutationQuotas(
        quotas,
        lambda: (image.quotas, image.quota_generation),
        monotonic_ms_of(stages.world.clock),
        listening.internal_listener,
        listening.is_node,
    )
