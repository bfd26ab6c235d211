"""Checks of the topic configs of tiered storage, with Kafka's messages.

They apply to changes only: a topic that has such configs is opened by any broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.config.broker import BrokerConfig
from penstock.model.config.keys import ConfigValue, as_integer, as_strings
from penstock.model.config.topics import resolve_topic_configs
from penstock.model.errors import InvalidConfig

__all__ = ["check_topic_configs"]

_ENABLE = "remote.storage.enable"
#: what follows the retention of the whole log
_FOLLOWS = -2
_UNLIMITED = -1


def check_topic_configs(
    overrides: Mapping[str, str], broker: BrokerConfig, current: Mapping[str, str] | None = None
) -> None:
    """Raise InvalidConfig if a topic must not have `overrides`; `current` are those that it has."""
    values = resolve_topic_configs(overrides, broker)
    if not values[_ENABLE]:
        _check_disabling(values, current or {})
        return
    if not broker.remote_log_storage_system_enable:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage."
        )
    if "compact" in as_strings(values["cleanup.policy"]):
        raise InvalidConfig("Remote log storage is unsupported for the compacted topics")
    for unit in ("bytes", "ms"):
        _check_retention(values, unit)
    if values["remote.log.copy.disable"]:
        for unit in ("bytes", "ms"):
            _check_retention_without_copies(values, unit)


def _check_disabling(values: Mapping[str, ConfigValue], current: Mapping[str, str]) -> None:
    if current.get(_ENABLE, "false").lower() == "true" and not values["remote.log.delete.on.disable"]:
        raise InvalidConfig(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the "
            "remote data and turn to read only, please set `remote.storage.enable=true,"
            "remote.log.copy.disable=true`. If you want to disable remote storage and delete all remote "
            "data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _check_retention(values: Mapping[str, ConfigValue], unit: str) -> None:
    local_name, whole_name = f"local.retention.{unit}", f"retention.{unit}"
    local, whole = as_integer(values[local_name]), as_integer(values[whole_name])
    if local == _FOLLOWS or whole <= _UNLIMITED:
        return
    if local == _UNLIMITED:
        reason = f"Value must not be -1 as {whole_name} value is set as {whole}."
    elif local > whole:
        reason = f"Value must not be more than {whole_name} property value: {whole}"
    else:
        return
    raise InvalidConfig(f"Invalid value {local} for configuration {local_name}: {reason}")


def _check_retention_without_copies(values: Mapping[str, ConfigValue], unit: str) -> None:
    local, whole = values[f"local.retention.{unit}"], values[f"retention.{unit}"]
    if local not in (_FOLLOWS, whole):
        raise InvalidConfig(
            f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
            f"`retention.{unit}` must be set to the identical value because there will be no more logs "
            "copied to the remote storage."
        )
