"""The configs that a group may have of its own, under Kafka's names; what it does not set is the broker's."""

from __future__ import annotations

from typing import Final

from penstock.model.config.keys import ConfigKey, ConfigType, Synonym, table
from penstock.model.config.share_keys import SHARE_GROUP_KEYS

_I: Final = ConfigType.INT

GROUP_KEYS: Final = table(
    [
        ConfigKey(
            "consumer.session.timeout.ms",
            _I,
            45_000,
            "A member without a heartbeat for this long is removed from the group.",
            low=1,
            synonyms=(Synonym("group.consumer.session.timeout.ms"),),
        ),
        ConfigKey(
            "consumer.heartbeat.interval.ms",
            _I,
            5000,
            "How often members send a heartbeat.",
            low=1,
            synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
        ),
        ConfigKey(
            "consumer.assignment.interval.ms",
            _I,
            1000,
            "The shortest time between two assignments of the group.",
            low=0,
            synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
        ),
        *SHARE_GROUP_KEYS,
    ]
)
