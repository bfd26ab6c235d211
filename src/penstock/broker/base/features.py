"""The feature levels that this broker supports. A cluster raises a level only if all brokers support it.

`metadata.version` is Kafka's feature for the metadata records. Clients derive the capabilities of a cluster
from it. `group.version` 1 is the consumer group protocol (KIP-848). The levels of both are Kafka's, as far as
this broker implements them. `eligible.leader.replicas.version` (KIP-966) is Kafka's, too, and cannot be
switched off here. `transaction.version` 1 writes tagged fields to `__transaction_state`, and 2 raises the
producer epoch with each transaction (KIP-890). `share.version` 1 is share groups (KIP-932).
`penstock.version` is specific to Penstock. Level 1 adds tagged fields to messages between brokers
(docs/internals/node.md). Brokers that do not know a tagged field skip it. A change that older brokers could
not skip needs a new level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.metadata.configs import settle_min_isr
from penstock.metadata.image import ClusterImage
from penstock.metadata.scram_salts import settle_salt_key
from penstock.model.config import BrokerConfig
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct

__all__ = ["INITIAL_FEATURES", "SUPPORTED_FEATURES", "found_cluster"]

#: the (lowest, highest) supported level of each feature
SUPPORTED_FEATURES: Final = {
    "eligible.leader.replicas.version": (1, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    "penstock.version": (0, 1),
    "share.version": (0, 1),
    "transaction.version": (0, 2),
}
#: the feature levels of a new cluster
INITIAL_FEATURES: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 30,
    "penstock.version": 1,
    "share.version": 1,
    "transaction.version": 2,
}


def found_cluster(image: ClusterImage, config: BrokerConfig, token: Callable[[int], bytes]) -> list[Struct]:
    """The records that a new controller adds first: initial feature levels, min.insync.replicas, salt key."""
    records = settle_min_isr(image, config.min_insync_replicas)
    if not image.features:
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_FEATURES.items()
        ]
    has_sasl = any(endpoint.protocol.startswith("SASL_") for endpoint in config.all_endpoints)
    return records + settle_salt_key(image, token, is_needed=has_sasl)
