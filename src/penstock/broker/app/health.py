"""The health of one broker: composes its facts out of the broker's parts. Needs no monitoring port."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from penstock.broker.app.stages import Stages
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.monitoring.health_facts import HealthFacts, Phase
from penstock.broker.monitoring.sources import Sources
from penstock.observability.health import Finding, free_share_min
from penstock.ports import Space

__all__ = ["BrokerHealth", "sources_of"]


class BrokerHealth:
    """Computes the findings of a broker on request."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.phase = Phase()
        self.facts = HealthFacts(sources, self.phase)

    def findings(self, space: Mapping[str, Space]) -> Generator[None, None, Sequence[Finding]]:
        """The findings now, in slices. `space` has the (total, free) bytes of each data directory."""
        return self.facts.findings(space)


def sources_of(stages: Stages, client_telemetry: ClientTelemetry) -> Sources:
    """The parts of a broker that its health and its metrics are read from."""
    config, world, listening = stages.config, stages.world, stages.listening
    image, lifecycle, coordinators = stages.cluster.image, stages.replication.lifecycle, stages.coordinators

    def is_registered() -> bool:
        """Whether the image has the registration of this process."""
        known = image.brokers.get(config.node_id)
        return known is not None and (lifecycle is None or lifecycle.epoch == known.epoch)

    def is_fenced() -> bool:
        known = image.brokers.get(config.node_id)
        return known is None or known.fenced or (lifecycle is not None and lifecycle.fenced)

    def least_free_share(capacity: int) -> float:
        ratio, enough = config.penstock_disk_free_min_ratio, config.penstock_disk_free_min_bytes
        return free_share_min(capacity, ratio, enough)

    return Sources(
        node_id=config.node_id,
        started_s=world.clock.now_ms() / 1000,
        is_broker=config.is_broker,
        clock=world.clock,
        workers=world.workers,
        metrics=stages.storage.metrics,
        audit=listening.audit,
        image=image,
        node=stages.cluster.node,
        partitions=stages.storage.partitions,
        servers=listening.servers,
        securities=listening.securities,
        groups=coordinators.groups.runtime,
        transactions=coordinators.transactions,
        shares=coordinators.shares,
        client_telemetry=client_telemetry,
        links=stages.replication.links,
        registered=is_registered,
        fenced=is_fenced,
        free_share_min=least_free_share,
    )
