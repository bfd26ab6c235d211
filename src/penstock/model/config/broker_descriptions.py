"""The configs of a broker, its topics and its groups as DescribeConfigs shows them.

Topic configs are in the order of Apache Kafka, with those of Penstock behind them. Why: Java's clients keep
the configs of one bucket of their hash table in this order, and Kafka's tools print them in the order of the
table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from penstock.model.config.broker import BrokerConfig, broker_key
from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.descriptions import (
    ConfigEntry,
    ConfigSynonym,
    config_entry,
    overridden_entry,
    selected,
    unknown_entries,
)
from penstock.model.config.group_keys import GROUP_KEYS
from penstock.model.config.keys import ConfigKey, ConfigSource
from penstock.model.config.listener_names import LISTENER_PREFIX
from penstock.model.config.topic_keys import TOPIC_KEYS

__all__ = [
    "TOPIC_KEYS_AS_DESCRIBED",
    "describe_broker",
    "describe_dynamic_default",
    "describe_group",
    "describe_topic",
]


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configs of a broker, or those named; unknown names are skipped."""
    texts = config.texts
    keys = {n: k for n, k in BROKER_KEYS.items() if not k.internal or n in texts.static}
    keys |= {name: broker_key(name) for name in config if name.startswith(LISTENER_PREFIX)}
    unknown = {
        **unknown_entries(texts.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        **unknown_entries(texts.dynamic, ConfigSource.DYNAMIC_BROKER),
    }
    return [
        unknown[name] if name in unknown else _entry(config, keys[name])
        for name in selected([*keys, *unknown], names)
    ]


def _entry(config: BrokerConfig, key: ConfigKey) -> ConfigEntry:
    value = key.format(config[key.name])
    return config_entry(key, value, config.texts.synonyms(key), read_only=key.read_only)


def describe_dynamic_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The cluster's dynamic broker configs: what DescribeConfigs shows for the broker without a name."""
    entries = []
    texts = config.texts
    unknown = unknown_entries(texts.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    for name in selected(texts.dynamic_default, names):
        if name in unknown:
            entries.append(unknown[name])
            continue
        key = broker_key(name)
        value = key.format(key.parse(texts.dynamic_default[key.name]))
        only = tuple(s for s in texts.synonyms(key) if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(config_entry(key, value, only, read_only=key.read_only))
    return entries


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a topic, of which `overrides` are set."""
    entries = []
    for key in (TOPIC_KEYS[name] for name in selected(TOPIC_KEYS_AS_DESCRIBED, names)):
        if key.internal and key.name not in overrides:
            continue
        synonyms = config.texts.synonyms(BROKER_KEYS[key.synonyms[0].name]) if key.synonyms else ()
        value = key.format(config.topic_defaults[key.name])
        entries.append(overridden_entry(key, value, synonyms, overrides, ConfigSource.DYNAMIC_TOPIC))
    return entries


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configs of a group, of which `overrides` are set."""
    entries = []
    for key in (GROUP_KEYS[name] for name in selected(GROUP_KEYS, names)):
        synonyms, value = _group_default(config, key)
        entries.append(overridden_entry(key, value, synonyms, overrides, ConfigSource.DYNAMIC_GROUP))
    return entries


def _group_default(config: BrokerConfig, key: ConfigKey) -> tuple[tuple[ConfigSynonym, ...], str | None]:
    """The value of a group config that is not set: the broker's, if there is a broker config for it."""
    if not key.synonyms:
        value = key.format(key.default)
        return (ConfigSynonym(key.name, value, ConfigSource.DEFAULT),), value
    default = BROKER_KEYS[key.synonyms[0].name]
    return config.texts.synonyms(default), key.format(config[default.name])


#: as Apache Kafka 4.3.1 responds
_KAFKA_NAMES: Final = (
    "compression.type",
    "remote.log.delete.on.disable",
    "leader.replication.throttled.replicas",
    "remote.storage.enable",
    "min.insync.replicas",
    "segment.jitter.ms",
    "remote.log.copy.disable",
    "local.retention.ms",
    "cleanup.policy",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "compression.lz4.level",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "local.retention.bytes",
    "preallocate",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "unclean.leader.election.enable",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "segment.ms",
    "segment.index.bytes",
)
TOPIC_KEYS_AS_DESCRIBED: Final = (
    *_KAFKA_NAMES,
    *(name for name in TOPIC_KEYS if name not in _KAFKA_NAMES),
)
