"""The configs of share groups that partition leaders apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.metadata.configs import GROUP
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig, group_values
from penstock.model.config.offset_reset import OffsetReset, parse_offset_reset
from penstock.shares.partition import ShareLimits

__all__ = ["ShareGroupSettings", "SharesConfig"]


class ShareGroupSettings(NamedTuple):
    limits: ShareLimits
    #: read committed records only
    is_committed: bool
    offset_reset: OffsetReset


class SharesConfig:
    """The settings of each group, read once until a config changes."""

    def __init__(self, config: BrokerConfig, image: ClusterImage) -> None:
        self._config = config
        self._image = image
        self._known: dict[str, ShareGroupSettings] = {}

    def changed(self) -> None:
        self._known.clear()

    @property
    def sessions_max(self) -> int:
        values: Mapping[str, Any] = self._config
        return int(values["group.share.max.share.sessions"])

    @property
    def fetch_bytes_max(self) -> int:
        return self._config.fetch_max_bytes

    def of(self, group_id: str) -> ShareGroupSettings:
        found = self._known.get(group_id)
        if found is None:
            found = self._known[group_id] = self._read(group_id)
        return found

    def _read(self, group_id: str) -> ShareGroupSettings:
        values: dict[str, Any] = dict(
            group_values(self._image.configs.get((GROUP, group_id), {}), self._config)
        )
        limits = ShareLimits(
            delivery_count=values["share.delivery.count.limit"],
            lock_ms=values["share.record.lock.duration.ms"],
            in_flight=values["share.partition.max.record.locks"],
            renewal_enabled=values["share.renew.acknowledge.enable"],
        )
        is_committed = values["share.isolation.level"] == "read_committed"
        return ShareGroupSettings(limits, is_committed, parse_offset_reset(values["share.auto.offset.reset"]))
