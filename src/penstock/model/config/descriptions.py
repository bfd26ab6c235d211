"""Configs as DescribeConfigs shows them: value, source, and the places that set them, strongest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.model.config.broker_keys import BROKER_KEYS, SYNONYM_GROUPS
from penstock.model.config.keys import ConfigKey, ConfigSource, ConfigType, Synonym
from penstock.model.config.listener_names import listener_name

__all__ = [
    "ConfigEntry",
    "ConfigSynonym",
    "ConfigTexts",
    "config_entry",
    "overridden_entry",
    "selected",
    "unknown_entries",
]


class ConfigSynonym(NamedTuple):
    """One of the places that a value could come from."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config as DescribeConfigs shows it; `synonyms` in the order in which they win."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


class ConfigTexts(NamedTuple):
    """The texts that set a broker's configs, by their source. An earlier field wins over a later one."""

    #: set for this broker while it runs
    dynamic: Mapping[str, str]
    #: set for all brokers of the cluster
    dynamic_default: Mapping[str, str]
    #: set when the broker was started
    static: Mapping[str, str]

    def synonyms(self, key: ConfigKey) -> tuple[ConfigSynonym, ...]:
        """Every place that sets the key or a synonym of it, strongest first.

        Like Kafka, the list starts at the key's own name: coarser synonyms before it are left out.
        """
        group = SYNONYM_GROUPS.get(key.name, (Synonym(key.name),))
        sources = (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self.static, ConfigSource.STATIC_BROKER),
        )
        found = [
            ConfigSynonym(name, None if key.sensitive else texts[name], source)
            for texts, source in sources
            for name, _ in group
            if name in texts
        ]
        for name, _ in group if key.name in BROKER_KEYS else ():
            default = BROKER_KEYS[name].format(BROKER_KEYS[name].default)
            if default is not None:
                found.append(ConfigSynonym(name, None if key.sensitive else default, ConfigSource.DEFAULT))
        first = next((i for i, synonym in enumerate(found) if synonym.name == key.name), len(found))
        return tuple(found[first:])


def config_entry(
    key: ConfigKey, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool
) -> ConfigEntry:
    """The entry of a key with the text of its value, which is left out of a sensitive key's entry."""
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=key.type,
        read_only=read_only,
        sensitive=key.sensitive,
        documentation=key.documentation,
        synonyms=synonyms,
    )


def overridden_entry(
    key: ConfigKey,
    value: str | None,
    synonyms: tuple[ConfigSynonym, ...],
    overrides: Mapping[str, str],
    source: ConfigSource,
) -> ConfigEntry:
    """The entry of a topic's or a group's key; `value` and `synonyms` hold if `overrides` do not set it."""
    if key.name in overrides:
        value = key.format(key.parse(overrides[key.name]))
        synonyms = (ConfigSynonym(key.name, value, source), *synonyms)
    return config_entry(key, value, synonyms, read_only=False)


def selected(known: Collection[str], names: Collection[str] | None) -> list[str]:
    """The requested names that exist, in the order of the request; all of them without a request."""
    return [name for name in dict.fromkeys(names) if name in known] if names else list(known)


def unknown_entries(texts: Mapping[str, str], source: ConfigSource) -> dict[str, ConfigEntry]:
    """Entries for unknown names that are set. Like Kafka, show the name, but not the value."""
    return {
        name: ConfigEntry(name, None, source, ConfigType.UNKNOWN, True, True, "", ())
        for name in texts
        if name not in BROKER_KEYS and listener_name(name) is None
    }
