"""The feature levels that this broker supports. A cluster raises a level only if all brokers support it.

`metadata.version` is Kafka's feature for the metadata records. Clients derive the capabilities of a cluster
from it. `group.version` 1 is the consumer group protocol (KIP-848). The levels of both are Kafka's, as far as
this broker implements them. `eligible.leader.replicas.version` (KIP-966) is Kafka's, too, and cannot be
switched off here. `transaction.version` 1 writes tagged fields to `__transaction_state`, and 2 raises the
producer epoch with each transaction (KIP-890). `share.version` 1 is share groups (KIP-932), and
`streams.version` 1 is streams groups (KIP-1071).
`penstock.version` is specific to Penstock, with a level for each release. Level 1 (0.1) adds tagged fields
to messages between brokers (docs/internals/node.md). Brokers that do not know a tagged field skip it. A
change that older brokers could not skip needs the level of its release, in `metadata/levels.py`. Level 2 is
0.2, also of cluster links (ADR 93).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.metadata.configs import settle_min_isr
from penstock.metadata.features import check_supported
from penstock.metadata.image import ClusterImage
from penstock.metadata.scram_salts import settle_salt_key
from penstock.model.config import BrokerConfig
from penstock.model.errors import UnsupportedVersion
from penstock.version import VERSION
from penstock.wire.metadata_records import FeatureLevelRecord
from penstock.wire.schema import Struct

__all__ = [
    "INITIAL_FEATURES",
    "LINKS_FROM",
    "NO_LINKS",
    "NO_SHARE_GROUPS",
    "NO_STREAMS_GROUPS",
    "PENSTOCK_VERSION",
    "SUPPORTED_FEATURES",
    "found_cluster",
    "too_old_for",
]

PENSTOCK_VERSION: Final = "penstock.version"
#: the level from which on there are cluster links: older brokers would let producers write to mirrored topics
LINKS_FROM: Final = 2
NO_LINKS: Final = (
    "Cluster links are disabled: the feature penstock.version of this cluster is below 2. Once all brokers "
    "have been upgraded, raise it with `penstock cluster upgrade`."
)


#: for the clients of a cluster that an earlier version created
NO_SHARE_GROUPS: Final = (
    "Share groups are disabled: the feature share.version of this cluster is 0. Once all brokers have been "
    "upgraded, raise it with `penstock cluster upgrade`, or with "
    "`kafka-features.sh upgrade --feature share.version=1`."
)
NO_STREAMS_GROUPS: Final = (
    "Streams groups are disabled: the feature streams.version of this cluster is 0. Once all brokers have "
    "been upgraded, raise it with `penstock cluster upgrade`, or with "
    "`kafka-features.sh upgrade --feature streams.version=1`."
)

#: the (lowest, highest) supported level of each feature
SUPPORTED_FEATURES: Final = {
    "eligible.leader.replicas.version": (1, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    PENSTOCK_VERSION: (0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
#: the feature levels of a new cluster
INITIAL_FEATURES: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 30,
    PENSTOCK_VERSION: 2,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def too_old_for(levels: Mapping[str, int]) -> str | None:
    """Why this version cannot run in a cluster that works at these levels; None if it can."""
    try:
        check_supported(levels, SUPPORTED_FEATURES)
    except UnsupportedVersion as reason:
        return f"Penstock {VERSION} is too old here. {reason}: run the version that was finalised"
    return None


def found_cluster(image: ClusterImage, config: BrokerConfig, token: Callable[[int], bytes]) -> list[Struct]:
    """The records that a new controller adds first: initial feature levels, min.insync.replicas, salt key."""
    records = settle_min_isr(image, config.min_insync_replicas)
    if not image.features:
        records += [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_FEATURES.items()
        ]
    has_sasl = any(endpoint.protocol.startswith("SASL_") for endpoint in config.all_endpoints)
    return records + settle_salt_key(image, token, is_needed=has_sasl)
