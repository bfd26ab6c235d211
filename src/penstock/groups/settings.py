"""The configs of groups, typed and with short names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.groups.assignors import ASSIGNORS
from penstock.model.config import BrokerConfig, group_values
from penstock.model.errors import InvalidConfig

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Values of the configs in docs/configuration.md. Names end in their unit."""

    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    classic_size_max: int = 2**31 - 1
    offsets_retention_ms: int = 10_080 * 60_000
    retention_check_ms: int = 600_000
    metadata_length_max: int = 4096
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_ms: int = 5000
    consumer_waiting_heartbeat_ms: int = 500
    consumer_regex_refresh_ms: int = 600_000
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_assignment_interval_ms: int = 1000
    migration_policy: str = "bidirectional"
    share_session_timeout_ms: int = 45_000
    share_heartbeat_ms: int = 5000
    share_size_max: int = 200
    share_assignment_interval_ms: int = 1000
    #: the longest time for which a new member waits in its first JoinGroup
    new_member_join_timeout_ms: int = 300_000

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        values: dict[str, Any] = dict(config)
        unknown = [name for name in values["group.consumer.assignors"] if name not in ASSIGNORS]
        if unknown:
            raise InvalidConfig(
                f"group.consumer.assignors: unknown assignor {unknown[0]!r}; use {', '.join(ASSIGNORS)}"
            )
        return cls(
            session_timeout_ms_min=values["group.min.session.timeout.ms"],
            session_timeout_ms_max=values["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
            classic_size_max=values["group.max.size"],
            offsets_retention_ms=values["offsets.retention.minutes"] * 60_000,
            retention_check_ms=values["offsets.retention.check.interval.ms"],
            metadata_length_max=values["offset.metadata.max.bytes"],
            consumer_session_timeout_ms=values["group.consumer.session.timeout.ms"],
            consumer_heartbeat_ms=values["group.consumer.heartbeat.interval.ms"],
            consumer_waiting_heartbeat_ms=values["penstock.group.consumer.waiting.heartbeat.interval.ms"],
            consumer_regex_refresh_ms=values["group.consumer.regex.refresh.interval.ms"],
            consumer_size_max=values["group.consumer.max.size"],
            consumer_assignors=tuple(values["group.consumer.assignors"]),
            consumer_assignment_interval_ms=values["group.consumer.assignment.interval.ms"],
            migration_policy=values["group.consumer.migration.policy"],
            share_session_timeout_ms=values["group.share.session.timeout.ms"],
            share_heartbeat_ms=values["group.share.heartbeat.interval.ms"],
            share_size_max=values["group.share.max.size"],
            share_assignment_interval_ms=values["group.share.assignment.interval.ms"],
        )

    def with_own(self, overrides: Mapping[str, str], config: BrokerConfig) -> GroupSettings:
        """The settings of a group that has configs of its own."""
        values: dict[str, Any] = dict(group_values(overrides, config))
        return replace(
            self,
            consumer_session_timeout_ms=values["consumer.session.timeout.ms"],
            consumer_heartbeat_ms=values["consumer.heartbeat.interval.ms"],
            consumer_assignment_interval_ms=values["consumer.assignment.interval.ms"],
            share_session_timeout_ms=values["share.session.timeout.ms"],
            share_heartbeat_ms=values["share.heartbeat.interval.ms"],
            share_assignment_interval_ms=values["share.assignment.interval.ms"],
        )
