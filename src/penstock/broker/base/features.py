"""Features with levels: what this broker can do, so that a cluster raises a level only when all can.

`metadata.version` is Kafka's name for the level of the metadata records; clients use it to tell what a
cluster supports. `group.version` 1 stands for the consumer protocol of groups (KIP-848). Levels of both are
Kafka's, as far as we implement what they stand for; so is `eligible.leader.replicas.version` (KIP-966), which
cannot be switched off here. `penstock.version` is ours: 1 stands for the fields that our brokers add to
Kafka's messages among themselves (docs/internals/node.md), which whoever does not know them skips; what older
brokers would not skip waits for a level of its own.
"""

from __future__ import annotations

from typing import Final

from penstock.metadata.configs import settle_min_isr
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct

__all__ = ["INITIAL_FEATURES", "SUPPORTED_FEATURES", "found_cluster"]

#: name to (lowest, highest) level that this broker can work at
SUPPORTED_FEATURES: Final = {
    "eligible.leader.replicas.version": (1, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    "penstock.version": (0, 1),
}
#: what a new cluster starts with
INITIAL_FEATURES: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 30,
    "penstock.version": 1,
}


def found_cluster(image: ClusterImage, config: BrokerConfig) -> list[Struct]:
    """What a controller adds to the metadata before its first decision: what a cluster has from the start."""
    records = settle_min_isr(image, config.min_insync_replicas)
    if not image.features:
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_FEATURES.items()
        ]
    return records
