"""Applies changes of the metadata to all stages of a broker: configs, quotas, replicas, coordinators.

Nothing is applied before `follow` or `follow_as_controller`: until then the replicas are not open, and both
take over all that the image has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.broker.app.stages import Stages
from penstock.broker.app.tracing import Tracing
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.request.internal_listener import limits_of
from penstock.broker.request.metered_requests import MeteredRequests
from penstock.metadata.image import BROKER, CLIENT_METRICS
from penstock.quotas.connections import address_rates
from penstock.security.principal import canonical_address
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
)

__all__ = ["MetadataChanges"]

#: types of which one change may have thousands of records; only the image needs those of ACLs
_ACLS: Final = frozenset((AccessControlEntryRecord, RemoveAccessControlEntryRecord))
_PARTITIONS: Final = frozenset((PartitionRecord, PartitionChangeRecord))


class MetadataChanges:
    """Follows the image of one broker."""

    def __init__(
        self,
        stages: Stages,
        metered: Sequence[MeteredRequests],
        tracing: Tracing,
        client_telemetry: ClientTelemetry,
    ) -> None:
        """`metered` enforce the quotas of clients."""
        self._stages = stages
        self._image = stages.cluster.image
        self._metered = metered
        self._tracing = tracing
        self._client_telemetry = client_telemetry
        self._apply: Callable[[Sequence[Struct]], Awaitable[None]] = _ignore

    async def follow(self) -> None:
        """Open the replicas that the image assigns to this broker, and apply metadata changes from now on."""
        coordinators = self._stages.coordinators
        await self._apply_broker_configs()
        self._apply_quotas()
        self._apply_subscriptions()
        self._stages.cluster.revocations.start()
        coordinators.groups.start()
        coordinators.transactions.start()
        coordinators.shares.start()
        await self._stages.storage.partitions.load(self._image)
        await self._stages.replication.replicas.directory_moves.resume()
        self._apply = self._apply_to_broker

    async def follow_as_controller(self) -> None:
        """Apply the metadata changes that concern the internal listener of a node without replicas."""
        self._apply_quotas()
        self._stages.cluster.revocations.start()
        self._apply = self._apply_to_controller

    async def applied(self, records: Sequence[Struct]) -> None:
        """Apply records that the image has by now."""
        await self._apply(records)

    async def _apply_to_broker(self, records: Sequence[Struct]) -> None:
        stages, coordinators = self._stages, self._stages.coordinators
        # A change has thousands of records of partitions or of ACLs, and few others.
        records = [record for record in records if type(record) not in _ACLS]
        others = [record for record in records if type(record) not in _PARTITIONS]
        stages.cluster.revocations.applied(others)
        configs = {record.resource_type for record in others if isinstance(record, ConfigRecord)}
        if any(isinstance(record, BrokerRegistrationChangeRecord) for record in others):
            # A controlled shutdown waits until all brokers have applied it. A fenced broker may be alive.
            stages.replication.heartbeat_due()
        # Once for all records: each of these takes over everything that there is of its kind.
        if BROKER in configs:
            await self._apply_broker_configs()
        if CLIENT_METRICS in configs:
            self._apply_subscriptions()
        if any(isinstance(record, ClientQuotaRecord) for record in others):
            self._apply_quotas()
        await stages.listening.securities.use_salt_key()
        removed = await stages.replication.replicas.apply(records)
        coordinators.groups.metadata_changed(others, removed)
        coordinators.shares.metadata_changed(others, removed)
        if removed:
            coordinators.transactions.topics_removed()
        for record in others:
            if isinstance(record, ProducerIdsRecord) and record.broker_id < 0:
                stages.cluster.producer_ids.reserved(record.next_producer_id)
        stages.replication.links.metadata_changed(others)

    async def _apply_to_controller(self, records: Sequence[Struct]) -> None:
        self._stages.cluster.revocations.applied(records)
        if any(isinstance(record, ClientQuotaRecord) for record in records):
            self._apply_quotas()

    def _apply_quotas(self) -> None:
        for metered in self._metered:
            metered.enforce(self._image.quotas, self._image.quota_generation)
        rates = address_rates(self._image.quotas).items()
        self._stages.listening.server.rates.set_address_rates(
            {None if address is None else canonical_address(address): rate for address, rate in rates}
        )

    def _apply_subscriptions(self) -> None:
        configs = self._image.configs.items()
        self._client_telemetry.update(each for (kind, _), each in configs if kind == CLIENT_METRICS)

    async def _apply_broker_configs(self) -> None:
        config, listening = self._stages.config, self._stages.listening
        config.set_dynamic(
            dynamic=self._image.configs.get((BROKER, str(config.node_id)), {}),
            dynamic_default=self._image.configs.get((BROKER, ""), {}),
        )
        listening.server.limits = limits_of(config)
        self._tracing.reconfigure()
        if listening.securities.depends_on(config):
            await listening.securities.reloads.reload()


async def _ignore(records: Sequence[Struct]) -> None:
    """What is applied before this broker follows the metadata: nothing."""
