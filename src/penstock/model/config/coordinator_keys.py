"""The broker configs of groups and offsets, and the list of all configs of a cluster.

All are validated and described from the start, so that an existing config file of Kafka loads. A key of a
capability that is not supported yet says so in `without_effect`.
"""

from __future__ import annotations

from penstock.model.config.balance_keys import BALANCE_KEYS
from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    INT_MAX,
    NO_KERBEROS,
    ConfigKey,
    ConfigType,
    UpdateMode,
    not_empty,
)
from penstock.model.config.quorum_keys import QUORUM_KEYS
from penstock.model.config.replication_keys import REPLICATION_KEYS
from penstock.model.config.share_keys import SHARE_KEYS
from penstock.model.config.streams_keys import STREAMS_KEYS
from penstock.model.config.transaction_keys import TRANSACTION_KEYS

_S, _I, _SHORT, _L, _LIST = (
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.LIST,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE
_PER_BROKER = UpdateMode.PER_BROKER

_OFFSETS = [
    ConfigKey("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets.", low=1),
    ConfigKey(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets. Groups are unavailable until that many brokers are "
        "registered. A broker without an internal listener creates one replica.",
        low=1,
    ),
    ConfigKey("offsets.topic.segment.bytes", _I, 104857600, "Segment size of __consumer_offsets.", low=1),
    ConfigKey(
        "offsets.topic.compression.codec",
        _I,
        0,
        "The codec number of __consumer_offsets.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "offsets.retention.minutes",
        _I,
        10_080,
        "How long committed offsets of an empty group are kept.",
        low=1,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms", _L, 600_000, "How often expired offsets are removed.", low=1
    ),
    ConfigKey(
        "offsets.commit.timeout.ms", _I, 5000, "How long an offset commit waits for its replicas.", low=1
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        _I,
        5242880,
        "The read size when a coordinator loads offsets.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey("offset.metadata.max.bytes", _I, 4096, "The largest metadata string of an offset commit."),
]

_GROUPS = [
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic", "consumer", "streams"),
        "The group protocols to offer.",
        choices=("classic", "consumer", "share", "streams"),
        check=not_empty,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "group.coordinator.threads", _I, 4, "Coordinator threads.", low=1, without_effect=COMPATIBLE_ONLY
    ),
    ConfigKey(
        "group.coordinator.background.threads",
        _I,
        2,
        "Threads of the group coordinator for assignments and regular expressions.",
        low=1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "group.coordinator.cached.buffer.max.bytes",
        _I,
        1048588,
        "The largest buffer that the group coordinator keeps for its next write.",
        low=524288,
        update_mode=_CLUSTER,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "group.coordinator.append.linger.ms",
        _I,
        -1,
        "How long a coordinator gathers records before it writes them.",
        low=-1,
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "group.min.session.timeout.ms",
        _I,
        6000,
        "The shortest session timeout that a classic member may request.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        _I,
        1_800_000,
        "The longest session timeout that a classic member may request.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _I,
        3000,
        "How long the first rebalance of an empty group waits for more members.",
    ),
    ConfigKey("group.max.size", _I, INT_MAX, "The most members of a classic group.", low=1),
    ConfigKey(
        "group.consumer.session.timeout.ms",
        _I,
        45_000,
        "A member without a heartbeat for this long is removed from its consumer group.",
        low=1,
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        _I,
        45_000,
        "The lower limit of the group config consumer.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        _I,
        60_000,
        "The upper limit of the group config consumer.session.timeout.ms.",
        low=1,
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _I,
        5000,
        "How often members of a consumer group send a heartbeat.",
        low=1,
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        _I,
        600_000,
        "How often the topics that a regular expression matches are computed again, for changed ACLs. A new "
        "or deleted topic has an effect at once.",
        low=10_000,
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        _I,
        5000,
        "The lower limit of the group config consumer.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config consumer.heartbeat.interval.ms.",
        low=1,
    ),
    ConfigKey("group.consumer.max.size", _I, INT_MAX, "The most members of a consumer group.", low=1),
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        ("uniform", "range"),
        "The server-side assignors, the default one first.",
        check=not_empty,
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        "Whether a live group may change between the classic and the consumer protocol.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    ConfigKey(
        "penstock.group.consumer.waiting.heartbeat.interval.ms",
        _I,
        500,
        "The heartbeat interval of a consumer group member that waits for partitions of its target "
        "assignment, plus 1 ms per member of the group. It never exceeds the ordinary interval.",
        low=100,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms",
        _I,
        1000,
        "The shortest time between two assignments of a group.",
        low=0,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "group.consumer.min.assignment.interval.ms",
        _I,
        0,
        "The lower limit of the group config consumer.assignment.interval.ms.",
        low=0,
    ),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms",
        _I,
        15_000,
        "The upper limit of the group config consumer.assignment.interval.ms.",
        low=0,
    ),
]

_SECURITY = [
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        _L,
        60_000,
        "The shortest time between two Kerberos logins. Admin tools set it.",
        update_mode=_PER_BROKER,
        without_effect=NO_KERBEROS,
    ),
]

COORDINATOR_KEYS: list[ConfigKey] = [
    *REPLICATION_KEYS,
    *BALANCE_KEYS,
    *QUORUM_KEYS,
    *_OFFSETS,
    *_GROUPS,
    *SHARE_KEYS,
    *STREAMS_KEYS,
    *TRANSACTION_KEYS,
    *_SECURITY,
]
