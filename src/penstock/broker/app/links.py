"""The links of a broker to other clusters, composed of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.broker.app.cluster import Cluster
from penstock.broker.app.coordinators import Coordinators
from penstock.broker.app.storage import Storage
from penstock.broker.base.logs import get_logger
from penstock.broker.links.runtime import Links
from penstock.broker.node.producer_ids import ProducerIds
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicPartition
from penstock.ports import World

if TYPE_CHECKING:
    from penstock.broker.links.worker import LinkEnvironment

__all__ = ["new_links"]

log = get_logger("links")
#: producer ids that are reserved at once: the ids of the source rise, and each reservation is a record
_IDS_AT_ONCE: Final = 100_000


def new_links(
    config: BrokerConfig, world: World, storage: Storage, cluster: Cluster, coordinators: Coordinators
) -> Links:
    """The links. Their parts are imported, and made, when there is a link."""

    def environment() -> LinkEnvironment:
        from penstock.broker.links.acl_mirroring import AclMirrorChanges
        from penstock.broker.links.changes import LinkChanges
        from penstock.broker.links.quota_mirroring import QuotaMirrorChanges
        from penstock.broker.links.worker import LinkEnvironment

        find = coordinators.shares.end_offsets.find

        async def high_watermarks(wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
            topics: dict[str, list[int]] = {}
            for key in wanted:
                topics.setdefault(key.topic, []).append(key.partition)
            return {TopicPartition(*key): end for key, end in (await find(topics)).items()}

        return LinkEnvironment(
            node_id=config.node_id,
            cluster_id=cluster.node.cluster_id,
            image=cluster.image,
            world=world,
            groups=coordinators.groups.runtime,
            high_watermarks=high_watermarks,
            changes=LinkChanges(
                cluster.image,
                cluster.node.controller,
                world.clock,
                cluster.forwarding.own,
                cluster.topics.create,
            ),
            acl_changes=AclMirrorChanges(
                cluster.image,
                cluster.node.controller,
                world.rng,
                cluster.forwarding.own,
                has_authorizer=bool(config.authorizer_class_name),
            ),
            quota_changes=QuotaMirrorChanges(cluster.image, cluster.node.controller, cluster.forwarding.own),
            reserve_producer_ids=_Reservations(cluster.image, cluster.producer_ids).reserve,
        )

    return Links(cluster.image, storage.partitions.find, environment)


class _Reservations:
    """Reserves the producer ids of mirrored records, so that no producer of this cluster gets one of them."""

    def __init__(self, image: ClusterImage, producer_ids: ProducerIds) -> None:
        self._image = image
        self._producer_ids = producer_ids
        self._task: asyncio.Task[None] | None = None

    def reserve(self, largest: int) -> bool:
        """Returns true if no broker uses ids up to `largest` any more. If not, it is to be called again.

        Why not compare with the next id of the cluster: brokers have blocks of ids below that.
        """
        if largest < self._producer_ids.floor:
            return True
        if self._task is None or self._task.done():
            below = max(largest, self._image.next_producer_id) + _IDS_AT_ONCE
            self._task = asyncio.get_running_loop().create_task(self._reserve(below))
        return False

    async def _reserve(self, below: int) -> None:
        try:
            await self._producer_ids.reserve(below)
        except PenstockError as e:
            log.info("producer_ids_not_reserved", below=below, error=str(e))
