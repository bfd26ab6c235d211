"""The configs of share groups, and of the topics that they read, that partition leaders apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.model.config import BrokerConfig, group_values, resolve_topic_configs
from penstock.model.config.offset_reset import OffsetReset, parse_offset_reset
from penstock.model.config.settings import BROKER_CONFIG, GROUP_CONFIG, TOPIC_CONFIG, read
from penstock.shares.partition import ShareLimits

__all__ = ["DeadLetterSettings", "ShareGroupSettings", "ShareTopicSettings", "SharesConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Where the dead letters of a group go (KIP-1191)."""

    #: empty for none
    topic: str = GROUP_CONFIG.text("errors.deadletterqueue.topic.name")
    copies_records: bool = GROUP_CONFIG.flag("errors.deadletterqueue.copy.record.enable")
    #: whether a missing topic is created, and the prefix that its name must have
    creates_topics: bool = BROKER_CONFIG.flag("errors.deadletterqueue.auto.create.topics.enable")
    name_prefix: str = BROKER_CONFIG.text("errors.deadletterqueue.topic.name.prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    limits: ShareLimits
    dead_letters: DeadLetterSettings
    #: read committed records only
    is_committed: bool = GROUP_CONFIG.parsed(
        "share.isolation.level", lambda level: bool(level == "read_committed")
    )
    offset_reset: OffsetReset = GROUP_CONFIG.parsed("share.auto.offset.reset", parse_offset_reset)  # noqa: RUF009 - a field


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTopicSettings:
    """The configs of a topic that concern share groups."""

    #: the age that a batch must have to be delivered
    delay_ms: int = TOPIC_CONFIG.integer("penstock.delivery.delay.ms")
    #: whether records that all share groups have finished are deleted
    deletes_consumed: bool = TOPIC_CONFIG.flag("penstock.delete.after.consumption")
    #: whether brokers may write dead letters to it
    takes_dead_letters: bool = TOPIC_CONFIG.flag("errors.deadletterqueue.group.enable")


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
        return self._config.group_share_max_share_sessions

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
        return read(ShareTopicSettings, resolve_topic_configs(configs, self._config))

    def _read(self, configs: Mapping[str, str]) -> ShareGroupSettings:
        values = group_values(configs, self._config)
        limits = read(ShareLimits, values)
        dead_letters = read(
            DeadLetterSettings,
            values,
            creates_topics=self._config.errors_deadletterqueue_auto_create_topics_enable,
            name_prefix=self._config.errors_deadletterqueue_topic_name_prefix,
        )
        return read(ShareGroupSettings, values, limits=limits, dead_letters=dead_letters)
