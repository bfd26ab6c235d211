"""The configs of the share coordinator, and the input that all its shards of a broker share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.config.settings import BROKER_CONFIG, read

__all__ = ["Environment", "ShareCoordinatorSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """Values of the configs in docs/configuration.md. Names end in their unit."""

    updates_per_snapshot: int = BROKER_CONFIG.integer(
        "share.coordinator.snapshot.update.records.per.snapshot"
    )
    cold_snapshot_ms: int = BROKER_CONFIG.integer("share.coordinator.cold.partition.snapshot.interval.ms")
    prune_ms: int = BROKER_CONFIG.integer("share.coordinator.state.topic.prune.interval.ms")

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareCoordinatorSettings:
        return read(cls, config)


class Environment:
    """Settings and the cluster image."""

    __slots__ = ("image", "settings")

    def __init__(self, settings: ShareCoordinatorSettings, image: ClusterImage) -> None:
        self.settings = settings
        self.image = image
