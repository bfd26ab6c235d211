"""A topic's configs: what was set for it over what the broker says, checked together."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.config.broker import BrokerConfig
from penstock.model.config.keys import ConfigValue, Copies, find_key
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.errors import InvalidConfig


def parse_topic_config(name: str, text: str) -> ConfigValue:
    """The typed value of a topic config; raises InvalidConfig for an unknown name or a bad value."""
    return find_key(TOPIC_KEYS, name, "topic").parse(text)


def copied_configs(configs: Mapping[str, str], copy: Copies) -> dict[str, str]:
    """The configs of a topic that a copy of it takes over."""
    return {
        name: text
        for name, text in configs.items()
        if (key := TOPIC_KEYS.get(name)) is None or copy not in key.left_out
    }


def resolve_topic_configs(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """Every topic config with its typed value; raises InvalidConfig if the overrides are not acceptable."""
    values = dict(broker.topic_defaults)
    for name, text in overrides.items():
        values[name] = parse_topic_config(name, text)
    _check_together(values)
    return values


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """The configs as a log applies them: with the segment size for tests, if there is one."""
    values = resolve_topic_configs(overrides, broker)
    segment_bytes = values["internal.segment.bytes"]
    if segment_bytes is not None:
        values["segment.bytes"] = segment_bytes
    return values


def _check_together(values: Mapping[str, ConfigValue]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise InvalidConfig(
            f"min.compaction.lag.ms ({least}) must not be more than max.compaction.lag.ms ({most})"
        )
    if values["penstock.delay.target"]:
        _check_delay_topic(values)


def _check_delay_topic(values: Mapping[str, ConfigValue]) -> None:
    """Messages of a delay topic must stay until they are due."""
    needed = {"retention.ms": -1, "retention.bytes": -1, "cleanup.policy": ("delete",)}
    for name, value in needed.items():
        if values[name] != value:
            text = value[0] if isinstance(value, tuple) else value
            raise InvalidConfig(
                f"penstock.delay.target needs {name}={text}: messages that are not due must not be deleted"
            )
