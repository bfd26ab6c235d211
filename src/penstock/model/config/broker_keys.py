"""The broker configs: Kafka's names, defaults and limits, and Penstock's own under `penstock.`.

Keys of groups, transactions and the cluster are in `coordinator_keys`. Kafka's thread counts are accepted
because deployments set them, and say so: one broker is one process with one event loop.
"""

from __future__ import annotations

from penstock.model.config.access_keys import ACCESS_KEYS
from penstock.model.config.audit_keys import AUDIT_KEYS
from penstock.model.config.coordinator_keys import COORDINATOR_KEYS
from penstock.model.config.keys import (
    COMPATIBLE_ONLY,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Synonym,
    UpdateMode,
    table,
)
from penstock.model.config.monitoring_keys import MONITORING_KEYS
from penstock.model.config.network_keys import NETWORK_KEYS
from penstock.model.config.quota_keys import QUOTA_KEYS
from penstock.model.config.remote_keys import REMOTE_KEYS
from penstock.model.config.security_keys import SECURITY_KEYS
from penstock.model.config.storage_keys import STORAGE_KEYS
from penstock.model.config.token_keys import TOKEN_KEYS
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.config.tracing_keys import TRACING_KEYS

__all__ = ["BROKER_KEYS", "SYNONYM_GROUPS"]

_B, _S, _I, _L, _CLASS = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.CLASS,
)
_CLUSTER = UpdateMode.CLUSTER_WIDE
_NO_POLICIES = "Must be empty: Java classes are not loaded, so that the policy would not be enforced."


def _no_policy(value: str) -> str | None:
    """Refuse a guard that would silently be missing."""
    return (
        "must be empty: Java classes are not loaded here, so that the policy would not be enforced"
        if value
        else None
    )


def _topic_defaults() -> list[ConfigKey]:
    """The broker keys that give topics their defaults.

    Where a topic key has several synonyms, only the last, coarsest one has a default: the others are null.
    """
    return [
        key._replace(
            name=key.synonyms[0].name,
            default=key.default if len(key.synonyms) == 1 else None,
            doc=f"Default of the topic config {key.name}: {key.doc}",
            update_mode=_CLUSTER,
            synonyms=(),
        )
        for key in TOPIC_KEYS.values()
        if key.synonyms
    ]


_TIME_FALLBACKS = [
    ConfigKey("log.roll.hours", _I, 168, "Segment age in hours; log.roll.ms overrides it.", low=1),
    ConfigKey(
        "log.roll.jitter.hours", _I, 0, "Segment jitter in hours; log.roll.jitter.ms overrides it.", low=0
    ),
    ConfigKey("log.retention.minutes", _I, None, "Retention in minutes; log.retention.ms overrides it."),
    ConfigKey(
        "log.retention.hours",
        _I,
        168,
        "Retention in hours; log.retention.ms and log.retention.minutes override it.",
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        _L,
        LONG_MAX,
        "How often logs are checked for data to sync, if log.flush.interval.ms is not set.",
    ),
]

_IDENTITY = [
    ConfigKey("node.id", _I, 1, "The id of this broker, unique in its cluster.", low=0),
    ConfigKey("broker.id", _I, -1, "The older name of node.id. Both always have the same value."),
    ConfigKey(
        "broker.rack", _S, None, "The zone of this broker. Replicas of a partition are spread over zones."
    ),
    ConfigKey(
        "penstock.machine",
        _S,
        None,
        "The machine of this broker. Replicas of a partition are spread over machines. Default: the "
        "address of the internal listener.",
    ),
    ConfigKey(
        "penstock.bootstrap.port",
        _I,
        0,
        "A port that all brokers of a machine share, beside the port of each (SO_REUSEPORT). A connection to "
        "it reaches one of those that run, on its first listener. `penstock up --cores N` sets it. 0: none.",
        low=0,
        high=65535,
    ),
]

_FETCHING = [
    ConfigKey("fetch.max.bytes", _I, 57671680, "The most bytes in one fetch response.", low=1024),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _I,
        1000,
        "The most fetch sessions; 0 turns fetch sessions off.",
        low=0,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _I,
        2000,
        "The most partitions in one DescribeTopicPartitions response.",
        low=1,
    ),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests",
        _I,
        1000,
        "How often completed fetches are removed from the purgatory.",
        without_effect=COMPATIBLE_ONLY,
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests",
        _I,
        1000,
        "How often completed produce requests are removed from the purgatory.",
        without_effect=COMPATIBLE_ONLY,
    ),
]

_TOPICS = [
    ConfigKey(
        "num.partitions", _I, 1, "Partitions of a topic that is created without a partition count.", low=1
    ),
    ConfigKey(
        "default.replication.factor",
        _I,
        1,
        "Replicas of a topic that is created without a replication factor.",
        low=1,
    ),
    ConfigKey(
        "auto.create.topics.enable", _B, True, "Whether a missing topic is created when a client requests it."
    ),
    ConfigKey("delete.topic.enable", _B, True, "Whether topics can be deleted."),
    ConfigKey(
        "create.topic.policy.class.name",
        _CLASS,
        None,
        "A policy for new topics.",
        check=_no_policy,
        without_effect=_NO_POLICIES,
    ),
    ConfigKey(
        "alter.config.policy.class.name",
        _CLASS,
        None,
        "A policy for config changes.",
        check=_no_policy,
        without_effect=_NO_POLICIES,
    ),
]

_PENSTOCK = [
    ConfigKey(
        "penstock.flush",
        _S,
        "interval",
        "When acknowledged data is on disk. `interval` syncs every penstock.flush.interval.ms. "
        "`group` answers only after a sync, which many requests share. `os` leaves it to the "
        "operating system.",
        choices=("interval", "os", "group"),
    ),
    ConfigKey("penstock.flush.interval.ms", _L, 1000, "The interval of `penstock.flush=interval`.", low=1),
    ConfigKey(
        "penstock.quarantine.retention.ms",
        _L,
        604_800_000,
        "How long quarantined logs are kept, counted while the broker runs; -1 keeps them for ever.",
        low=-1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.scrub.interval.ms",
        _L,
        86_400_000,
        "The pause between two rounds of scrubbing. A round reads every sealed segment and verifies "
        "its checksums.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.scrub.bytes.per.second",
        _L,
        10 << 20,
        "The read rate of scrubbing, over all partitions.",
        low=1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.clock.skew.max.ms",
        _L,
        300_000,
        "How far the wall clock of a broker may differ from the clock that most brokers agree on. "
        "Beyond it the broker deletes nothing by time, and other in-sync replicas lead its "
        "partitions.",
        low=10_000,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.clock.grace.ms",
        _L,
        6 * 3_600_000,
        "How long a broker deletes nothing by time after its wall clock has jumped by more than "
        "`penstock.clock.skew.max.ms`, against the monotonic clock or against the time before a stop, unless "
        "the clock is set back, other brokers have watched the time, or an operator confirms it. A round of "
        "retention that would delete far more than usual waits as long.",
        low=1000,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.clock.confirmed.ms",
        _L,
        -1,
        "The time that an operator has confirmed last, in milliseconds since 1970. A broker whose wall clock "
        "is within `penstock.clock.skew.max.ms` of it believes its clock. `penstock cluster clock --confirm` "
        "sets it.",
        low=-1,
        update_mode=_CLUSTER,
    ),
    ConfigKey(
        "penstock.memory", _B, False, "Keep all data in memory. The data is lost when the broker ends."
    ),
    *REMOTE_KEYS,
    ConfigKey(
        "penstock.log.level",
        _S,
        "info",
        "The lowest level of logged events.",
        choices=("debug", "info", "warning", "error"),
    ),
    ConfigKey(
        "penstock.log.format",
        _S,
        "auto",
        "The format of log events: `human` for terminals, `text` for key=value pairs, `json` for "
        "objects. `auto` is `human` on a terminal and `text` elsewhere.",
        choices=("auto", "human", "text", "json"),
    ),
]

BROKER_KEYS: dict[str, ConfigKey] = table(
    [
        *_IDENTITY,
        *NETWORK_KEYS,
        *SECURITY_KEYS,
        *ACCESS_KEYS,
        *TOKEN_KEYS,
        *AUDIT_KEYS,
        *QUOTA_KEYS,
        *MONITORING_KEYS,
        *TRACING_KEYS,
        *_FETCHING,
        *_TOPICS,
        *STORAGE_KEYS,
        *_topic_defaults(),
        *_TIME_FALLBACKS,
        *COORDINATOR_KEYS,
        *_PENSTOCK,
    ]
)


def _synonym_groups() -> dict[str, tuple[Synonym, ...]]:
    """Broker keys that stand for one another, finest unit first, by the name of each member.

    log.flush.scheduler.interval.ms backs log.flush.interval.ms but also means something of its own.
    """
    groups = {}
    for key in TOPIC_KEYS.values():
        if len(key.synonyms) > 1:
            members = key.synonyms[:1] if key.name == "flush.ms" else key.synonyms
            groups.update({synonym.name: key.synonyms for synonym in members})
    return groups


SYNONYM_GROUPS = _synonym_groups()
