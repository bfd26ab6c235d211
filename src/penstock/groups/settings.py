"""The configs of groups, typed and with short names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.groups.assignors import ASSIGNORS
from penstock.model.config import GROUP_KEYS, BrokerConfig, group_values
from penstock.model.config.settings import BROKER_CONFIG, changed, read
from penstock.model.errors import InvalidConfig

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Values of the configs in docs/configuration.md. Names end in their unit."""

    session_timeout_ms_min: int = BROKER_CONFIG.integer("group.min.session.timeout.ms")
    session_timeout_ms_max: int = BROKER_CONFIG.integer("group.max.session.timeout.ms")
    initial_rebalance_delay_ms: int = BROKER_CONFIG.integer("group.initial.rebalance.delay.ms")
    classic_size_max: int = BROKER_CONFIG.integer("group.max.size")
    offsets_retention_ms: int = BROKER_CONFIG.integer("offsets.retention.minutes", factor=60_000)
    retention_check_ms: int = BROKER_CONFIG.integer("offsets.retention.check.interval.ms")
    metadata_length_max: int = BROKER_CONFIG.integer("offset.metadata.max.bytes")
    consumer_session_timeout_ms: int = BROKER_CONFIG.integer("group.consumer.session.timeout.ms")
    consumer_heartbeat_ms: int = BROKER_CONFIG.integer("group.consumer.heartbeat.interval.ms")
    consumer_waiting_heartbeat_ms: int = BROKER_CONFIG.integer(
        "penstock.group.consumer.waiting.heartbeat.interval.ms"
    )
    consumer_regex_refresh_ms: int = BROKER_CONFIG.integer("group.consumer.regex.refresh.interval.ms")
    consumer_size_max: int = BROKER_CONFIG.integer("group.consumer.max.size")
    consumer_assignors: tuple[str, ...] = BROKER_CONFIG.strings("group.consumer.assignors")
    consumer_assignment_interval_ms: int = BROKER_CONFIG.integer("group.consumer.assignment.interval.ms")
    migration_policy: str = BROKER_CONFIG.text("group.consumer.migration.policy")
    share_session_timeout_ms: int = BROKER_CONFIG.integer("group.share.session.timeout.ms")
    share_heartbeat_ms: int = BROKER_CONFIG.integer("group.share.heartbeat.interval.ms")
    share_size_max: int = BROKER_CONFIG.integer("group.share.max.size")
    share_assignment_interval_ms: int = BROKER_CONFIG.integer("group.share.assignment.interval.ms")
    streams_session_timeout_ms: int = BROKER_CONFIG.integer("group.streams.session.timeout.ms")
    streams_heartbeat_ms: int = BROKER_CONFIG.integer("group.streams.heartbeat.interval.ms")
    streams_size_max: int = BROKER_CONFIG.integer("group.streams.max.size")
    streams_standby_replicas: int = BROKER_CONFIG.integer("group.streams.num.standby.replicas")
    streams_initial_rebalance_delay_ms: int = BROKER_CONFIG.integer(
        "group.streams.initial.rebalance.delay.ms"
    )
    streams_assignment_interval_ms: int = BROKER_CONFIG.integer("group.streams.assignment.interval.ms")
    #: the longest time for which a new member waits in its first JoinGroup
    new_member_join_timeout_ms: int = 300_000

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        settings = read(cls, config)
        unknown = [name for name in settings.consumer_assignors if name not in ASSIGNORS]
        if unknown:
            raise InvalidConfig(
                f"group.consumer.assignors: unknown assignor {unknown[0]!r}; use {', '.join(ASSIGNORS)}"
            )
        return settings

    def with_own(self, overrides: Mapping[str, str], config: BrokerConfig) -> GroupSettings:
        """The settings of a group that has configs of its own."""
        values = group_values(overrides, config)
        return changed(self, {s.name: values[name] for name, key in GROUP_KEYS.items() for s in key.synonyms})
