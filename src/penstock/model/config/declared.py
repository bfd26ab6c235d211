"""The `topics` of a config file: what a broker creates at start where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.model.config.keys import find_key
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.model.config.units import Unit, plain
from penstock.model.errors import InvalidConfig

__all__ = ["TOPIC_SHORT_NAMES", "DeclaredTopic", "declared_topic"]

#: short names of topic configs, as the sections have them
TOPIC_SHORT_NAMES: Final[Mapping[str, tuple[str, Unit]]] = {
    "retention_time": ("retention.ms", Unit.DURATION),
    "retention_size": ("retention.bytes", Unit.SIZE),
    "segment_size": ("segment.bytes", Unit.SIZE),
    "segment_time": ("segment.ms", Unit.DURATION),
    "compression_type": ("compression.type", Unit.NONE),
    "cleanup_policy": ("cleanup.policy", Unit.NONE),
    "max_message_size": ("max.message.bytes", Unit.MESSAGE_SIZE),
    "min_insync_replicas": ("min.insync.replicas", Unit.NONE),
}
_NUMBERS: Final = ("partitions", "replication_factor")


class DeclaredTopic(NamedTuple):
    """A topic that shall exist; -1 leaves a number to the broker."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def declared_topic(topic: str, settings: Mapping[str, str]) -> DeclaredTopic:
    """A topic with its settings, by short names or Kafka's; raises InvalidConfig."""
    numbers = dict.fromkeys(_NUMBERS, -1)
    configs: dict[str, str] = {}
    for name, text in settings.items():
        if name in numbers:
            if not text.isdigit() or int(text) == 0:
                raise InvalidConfig(f"topics.{topic}.{name}: {text!r} is not a number above 0")
            numbers[name] = int(text)
            continue
        config, value = _config(topic, name, text)
        if config in configs:
            raise InvalidConfig(f"topics.{topic}: {config} is set twice: keep one of them")
        configs[config] = value
    return DeclaredTopic(topic, numbers["partitions"], numbers["replication_factor"], configs)


def _config(topic: str, name: str, text: str) -> tuple[str, str]:
    config, unit = TOPIC_SHORT_NAMES.get(name, (name, Unit.NONE))
    try:
        value = plain(text, unit)
        if config not in TOPIC_KEYS:
            raise InvalidConfig(_unknown(name))
        find_key(TOPIC_KEYS, config, "topic").parse(value)
    except InvalidConfig as error:
        raise InvalidConfig(f"topics.{topic}.{name}: {error}") from None
    return config, value


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # only a mistake pays for the import

    nearest = get_close_matches(name, [*_NUMBERS, *TOPIC_SHORT_NAMES, *TOPIC_KEYS], n=1, cutoff=0.6)
    return f"Unknown topic config name{f'; did you mean {nearest[0]}?' if nearest else ''}"
