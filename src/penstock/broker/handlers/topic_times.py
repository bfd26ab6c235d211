"""The times of a topic, as DescribeConfigs shows them.

Kafka's protocol has no field for them. Every Kafka client can read configs, so they are two more configs of
the topic. They are read-only and their source is the default, so tools that copy configs leave them out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from penstock.metadata.image import NO_TIME, TopicImage
from penstock.model.config import ConfigEntry, ConfigSource, ConfigType, selected
from penstock.model.ids import TOPIC_CHANGED, TOPIC_CREATED

__all__ = ["with_times"]

_DOCUMENTATION: Final = {
    TOPIC_CREATED: "When the topic was created, in milliseconds since 1970.",
    TOPIC_CHANGED: "When a config of the topic or the number of its partitions last changed, in milliseconds "
    "since 1970.",
}


def with_times(
    entries: Sequence[ConfigEntry], topic: TopicImage, names: Collection[str] | None
) -> list[ConfigEntry]:
    """The entries of a topic and its times, in the order of `names` if those are given."""
    times = {TOPIC_CREATED: topic.created_ms, TOPIC_CHANGED: topic.changed_ms}
    shown = {entry.name: entry for entry in entries}
    for name, time_ms in times.items():
        if time_ms != NO_TIME:
            shown[name] = _entry(name, time_ms)
    return [shown[name] for name in selected(shown, names)]


def _entry(name: str, time_ms: int) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=str(time_ms),
        source=ConfigSource.DEFAULT,
        type=ConfigType.LONG,
        read_only=True,
        sensitive=False,
        documentation=_DOCUMENTATION[name],
        synonyms=(),
    )
