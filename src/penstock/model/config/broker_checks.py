"""Checks of a broker's config values together, and of changes at runtime."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.encryption_keys import TEXT_PROVIDERS
from penstock.model.config.groups import check_broker_group_configs
from penstock.model.config.keys import ConfigKey, ConfigValue, UpdateMode, as_integer
from penstock.model.config.listener_names import listener_name
from penstock.model.config.listeners import parse_connection_overrides
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.errors import InvalidConfig

__all__ = ["check_dynamic_name", "check_together", "is_sensitive", "topic_default"]


def check_dynamic_name(name: str, *, cluster_wide: bool) -> None:
    """Refuse a name that cannot be changed while brokers run, or not for all of them at once.

    Like Kafka, accept unknown names: a plugin or a tool may have its configs there.
    """
    of_listener = listener_name(name)
    key = BROKER_KEYS.get(name) if of_listener is None else of_listener.key
    if key is None:
        return
    if key.read_only:
        raise InvalidConfig(
            f"Cannot update {name} dynamically: set it in the broker's config file and restart"
        )
    if cluster_wide and key.update_mode is UpdateMode.PER_BROKER:
        raise InvalidConfig(f"Cannot update {name} for the whole cluster: set it per broker")


def is_sensitive(name: str) -> bool:
    """Whether the value of a broker config must not be shown; false for an unknown name."""
    of_listener = listener_name(name)
    key = BROKER_KEYS.get(name) if of_listener is None else of_listener.key
    return key is not None and key.sensitive


def check_together(values: Mapping[str, ConfigValue]) -> None:
    """Check values that depend on each other, or that have several parts."""
    parse_connection_overrides(values)
    if values["broker.id"] != values["node.id"]:
        raise InvalidConfig("node.id and broker.id must be the same: set only node.id")
    retention_ms = topic_default(TOPIC_KEYS["retention.ms"], values)
    if retention_ms == 0:
        raise InvalidConfig("log.retention.ms must be at least 1, or -1 to keep data for ever")
    least, most = (
        as_integer(values["log.cleaner.min.compaction.lag.ms"]),
        values["log.cleaner.max.compaction.lag.ms"],
    )
    if least > as_integer(most):
        raise InvalidConfig(
            f"log.cleaner.min.compaction.lag.ms ({least}) must not be more than "
            f"log.cleaner.max.compaction.lag.ms ({most})"
        )
    memory, request = (
        as_integer(values["queued.max.request.bytes"]),
        as_integer(values["socket.request.max.bytes"]),
    )
    if 0 < memory < request:
        raise InvalidConfig(
            f"queued.max.request.bytes ({memory}) must allow at least one request of "
            f"socket.request.max.bytes ({request})"
        )
    if values["penstock.mount"] is not None and not values["penstock.memory"]:
        raise InvalidConfig("penstock.mount needs penstock.memory=true: its broker keeps no data")
    if values["penstock.mount"] is not None and values["controller.quorum.voters"]:
        raise InvalidConfig("penstock.mount is for one broker: leave controller.quorum.voters out")
    _check_remote_log(values)
    check_broker_group_configs(values)
    wait = as_integer(values["replica.fetch.wait.max.ms"])
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > as_integer(values[name]):
            raise InvalidConfig(
                f"replica.fetch.wait.max.ms ({wait}) must not be more than {name} ({values[name]})"
            )


def _check_remote_log(values: Mapping[str, ConfigValue]) -> None:
    if not values["remote.log.storage.system.enable"]:
        return
    if values["penstock.remote.log.address"] is None:
        raise InvalidConfig(
            "remote.log.storage.system.enable needs penstock.remote.log.address: where the archive is"
        )
    if values["penstock.mount"] is not None:
        raise InvalidConfig("remote.log.storage.system.enable excludes penstock.mount, which is read-only")
    provider = values["penstock.encryption.key.provider"]
    if provider not in TEXT_PROVIDERS:
        raise InvalidConfig(
            f"remote.log.storage.system.enable needs keys that all brokers share: "
            f"penstock.encryption.key.provider must be {' or '.join(TEXT_PROVIDERS)}, not {provider}"
        )


def topic_default(key: ConfigKey, values: Mapping[str, ConfigValue]) -> ConfigValue:
    """A topic key's value where the topic does not set it: the first of its synonyms that has one."""
    for name, factor in key.synonyms:
        value = values[name]
        if value is None:
            continue
        if factor == 1:
            return value
        return max(-1, as_integer(value) * factor)
    return key.default
