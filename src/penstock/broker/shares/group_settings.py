"""The configs of share groups, and of the topics that they read, that partition leaders apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.model.config import BrokerConfig, group_values, resolve_topic_configs
from penstock.model.config.offset_reset import OffsetReset, parse_offset_reset
from penstock.shares.partition import ShareLimits

__all__ = ["DeadLetterSettings", "ShareGroupSettings", "ShareTopicSettings", "SharesConfig"]


class DeadLetterSettings(NamedTuple):
    """Where the dead letters of a group go (KIP-1191)."""

    #: empty for none
    topic: str
    copies_records: bool
    #: whether a missing topic is created, and the prefix that its name must have
    creates_topics: bool
    name_prefix: str


class ShareGroupSettings(NamedTuple):
    limits: ShareLimits
    #: read committed records only
    is_committed: bool
    offset_reset: OffsetReset
    dead_letters: DeadLetterSettings


class ShareTopicSettings(NamedTuple):
    """The configs of a topic that concern share groups."""

    #: the age that a batch must have to be delivered
    delay_ms: int
    #: whether records that all share groups have finished are deleted
    deletes_consumed: bool
    #: whether brokers may write dead letters to it
    takes_dead_letters: bool


class SharesConfig:
    """The settings of each group and topic, read once until a config changes or a topic is deleted.

    Groups without configs, whose ids clients choose, share one entry; so do topics.
    """

    def __init__(self, config: BrokerConfig, image: ClusterImage) -> None:
        self._config = config
        self._image = image
        #: by name; None for groups, and for topics, without configs
        self._groups: dict[str | None, ShareGroupSettings] = {}
        self._topics: dict[str | None, ShareTopicSettings] = {}

    def changed(self) -> None:
        self._groups.clear()
        self._topics.clear()

    @property
    def entries(self) -> int:
        """The number of settings that are kept."""
        return len(self._groups) + len(self._topics)

    @property
    def sessions_max(self) -> int:
        values: Mapping[str, Any] = self._config
        return int(values["group.share.max.share.sessions"])

    @property
    def fetch_bytes_max(self) -> int:
        return self._config.fetch_max_bytes

    def of(self, group_id: str) -> ShareGroupSettings:
        found = self._groups.get(group_id)
        if found is None:
            configs = self._image.configs.get((GROUP, group_id), {})
            key = group_id if configs else None
            found = self._groups.get(key)
            if found is None:
                found = self._groups[key] = self._read(configs)
        return found

    def topic(self, name: str) -> ShareTopicSettings:
        found = self._topics.get(name)
        if found is None:
            configs = self._image.configs.get((TOPIC, name), {})
            key = name if configs else None
            found = self._topics.get(key)
            if found is None:
                found = self._topics[key] = self._read_topic(configs)
        return found

    def _read_topic(self, configs: Mapping[str, str]) -> ShareTopicSettings:
        values: dict[str, Any] = dict(resolve_topic_configs(configs, self._config))
        return ShareTopicSettings(
            delay_ms=values["penstock.delivery.delay.ms"],
            deletes_consumed=values["penstock.delete.after.consumption"],
            takes_dead_letters=values["errors.deadletterqueue.group.enable"],
        )

    def _read(self, configs: Mapping[str, str]) -> ShareGroupSettings:
        values: dict[str, Any] = dict(group_values(configs, self._config))
        limits = ShareLimits(
            delivery_count=values["share.delivery.count.limit"],
            lock_ms=values["share.record.lock.duration.ms"],
            in_flight=values["share.partition.max.record.locks"],
            renewal_enabled=values["share.renew.acknowledge.enable"],
            has_dead_letters=bool(values["errors.deadletterqueue.topic.name"]),
            backoff_ms=values["penstock.share.retry.backoff.ms"],
            backoff_max_ms=values["penstock.share.retry.backoff.max.ms"],
        )
        broker: Mapping[str, Any] = self._config
        dead_letters = DeadLetterSettings(
            values["errors.deadletterqueue.topic.name"],
            values["errors.deadletterqueue.copy.record.enable"],
            broker["errors.deadletterqueue.auto.create.topics.enable"],
            broker["errors.deadletterqueue.topic.name.prefix"],
        )
        is_committed = values["share.isolation.level"] == "read_committed"
        reset = parse_offset_reset(values["share.auto.offset.reset"])
        return ShareGroupSettings(limits, is_committed, reset, dead_letters)
