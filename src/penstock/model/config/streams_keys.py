"""The configs of streams groups: of brokers, and of single groups."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.model.config.keys import INT_MAX, ConfigKey, ConfigType, bounded_group_key, table

__all__ = ["STREAMS_GROUP_KEYS", "STREAMS_KEYS"]

_I: Final = ConfigType.INT

STREAMS_KEYS: Final = [
    ConfigKey(
        "group.streams.session.timeout.ms",
        _I,
        45_000,
        "A member without a heartbeat for this long is removed from its streams group.",
        low=1,
    ),
    ConfigKey(
        "group.streams.min.session.timeout.ms",
        _I,
        45_000,
        "The lower limit of the group config streams.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.streams.max.session.timeout.ms",
        _I,
        60_000,
        "The upper limit of the group config streams.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.streams.heartbeat.interval.ms",
        _I,
        5000,
        "How often members of a streams group send a heartbeat. Those that wait for tasks do so more often: "
        "see penstock.group.consumer.waiting.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey(
        "group.streams.min.heartbeat.interval.ms",
        _I,
        5000,
        "The lower limit of the group config streams.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey(
        "group.streams.max.heartbeat.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config streams.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey("group.streams.max.size", _I, INT_MAX, "The most members of a streams group.", low=1),
    ConfigKey(
        "group.streams.num.standby.replicas",
        _I,
        0,
        "Standby tasks for each task with state: copies of its state on other instances.",
        low=0,
    ),
    ConfigKey(
        "group.streams.max.standby.replicas",
        _I,
        2,
        "The upper limit of the group config streams.num.standby.replicas.",
        low=0,
    ),
    ConfigKey(
        "group.streams.initial.rebalance.delay.ms",
        _I,
        3000,
        "How long the first assignment of an empty streams group waits for more members.",
        low=0,
    ),
    ConfigKey(
        "group.streams.assignment.interval.ms",
        _I,
        1000,
        "The shortest time between two assignments of a streams group.",
        low=0,
    ),
    ConfigKey(
        "group.streams.min.assignment.interval.ms",
        _I,
        0,
        "The lower limit of the group config streams.assignment.interval.ms.",
        low=0,
    ),
    ConfigKey(
        "group.streams.max.assignment.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config streams.assignment.interval.ms.",
        low=0,
    ),
]
_key: Final = partial(bounded_group_key, table(STREAMS_KEYS))

STREAMS_GROUP_KEYS: Final = [
    _key(
        "streams.session.timeout.ms",
        "A member without a heartbeat for this long is removed from the streams group.",
    ),
    _key("streams.heartbeat.interval.ms", "How often members of the streams group send a heartbeat."),
    _key("streams.num.standby.replicas", "Standby tasks for each task with state of the streams group."),
    _key(
        "streams.initial.rebalance.delay.ms",
        "How long the first assignment of the streams group waits for more members.",
    ),
    _key("streams.assignment.interval.ms", "The shortest time between two assignments of the streams group."),
]
