"""The topic configs of replication throttles."""

from __future__ import annotations

from penstock.model.config.keys import ConfigKey, ConfigType
from penstock.model.config.topic_rules import check_throttled_replicas

__all__ = ["THROTTLE_KEYS"]

THROTTLE_KEYS: list[ConfigKey] = [
    ConfigKey(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose fetching is throttled on the follower: PARTITION:BROKER pairs, or `*` for all.",
        check=check_throttled_replicas,
        repeatable=True,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas whose fetches are throttled on the leader: PARTITION:BROKER pairs, or `*` for all.",
        check=check_throttled_replicas,
        repeatable=True,
    ),
    ConfigKey(
        "penstock.reassignment.throttle",
        ConfigType.STRING,
        "",
        "The memory of a throttle of moves: the lists of throttled replicas that were set before it.",
        internal=True,
    ),
]
