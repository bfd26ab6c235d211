"""The configs of the share coordinator, and the input that all its shards of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig

__all__ = ["Environment", "ShareCoordinatorSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """Values of the configs in docs/configuration.md. Names end in their unit."""

    updates_per_snapshot: int = 500
    cold_snapshot_ms: int = 300_000
    prune_ms: int = 300_000

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareCoordinatorSettings:
        value: Callable[[str], Any] = config.__getitem__
        return cls(
            updates_per_snapshot=value("share.coordinator.snapshot.update.records.per.snapshot"),
            cold_snapshot_ms=value("share.coordinator.cold.partition.snapshot.interval.ms"),
            prune_ms=value("share.coordinator.state.topic.prune.interval.ms"),
        )


class Environment:
    """Settings and the cluster image."""

    __slots__ = ("image", "settings")

    def __init__(self, settings: ShareCoordinatorSettings, image: ClusterImage) -> None:
        self.settings = settings
        self.image = image
