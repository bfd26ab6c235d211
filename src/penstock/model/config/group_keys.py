"""The configs that a group may have of its own, under Kafka's names; what it does not set is the broker's."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.model.config.coordinator_keys import COORDINATOR_KEYS
from penstock.model.config.keys import bounded_group_key, table
from penstock.model.config.share_keys import SHARE_GROUP_KEYS
from penstock.model.config.streams_keys import STREAMS_GROUP_KEYS

_bounded: Final = partial(bounded_group_key, table(COORDINATOR_KEYS))

GROUP_KEYS: Final = table(
    [
        _bounded(
            "consumer.session.timeout.ms",
            "A member without a heartbeat for this long is removed from the group.",
        ),
        _bounded("consumer.heartbeat.interval.ms", "How often members send a heartbeat."),
        _bounded(
            "consumer.assignment.interval.ms", "The shortest time between two assignments of the group."
        ),
        *SHARE_GROUP_KEYS,
        *STREAMS_GROUP_KEYS,
    ]
)
