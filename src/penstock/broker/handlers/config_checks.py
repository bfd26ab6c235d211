"""Checks of changes of configs that need more than the values: limits of connections, cluster links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.broker.base.features import LINKS_FROM, NO_LINKS, PENSTOCK_VERSION
from penstock.metadata.image import ClusterImage
from penstock.model.config import BROKER_KEYS
from penstock.model.config.links import check_link
from penstock.model.config.listener_names import listener_name
from penstock.model.config.mirrored_topics import MirroredTopic
from penstock.model.errors import InvalidConfig, PolicyViolation

__all__ = ["check_link_configs", "check_stays_reachable"]

#: limits of connections, which cannot be 0 while the broker runs
_CONNECTION_LIMITS: Final = (
    "max.connections",
    "max.connections.per.ip",
    "max.connection.creation.rate",
)


def check_link_configs(image: ClusterImage, name: str, values: Mapping[str, str]) -> None:
    """Refuse a link that cannot be, and the end of one that still mirrors topics."""
    if image.features.get(PENSTOCK_VERSION, 0) < LINKS_FROM:
        raise PolicyViolation(NO_LINKS)
    check_link(values)
    if values:
        return
    for topic in image.topics:
        text = image.topic_configs(topic).get("penstock.link")
        mirrored = MirroredTopic.parse(text) if text else None
        if mirrored is None or mirrored.is_source:
            continue
        if mirrored.link == name and mirrored.is_read_only:
            raise PolicyViolation(f"topic {topic} is mirrored by link {name}: promote it first")


def check_stays_reachable(values: Mapping[str, str]) -> None:
    """Reject limits of 0 connections: no client could connect to raise them again."""
    for name, text in values.items():
        of_listener = listener_name(name)
        key = name if of_listener is None else of_listener.key.name
        exempt = key == "max.connections.per.ip" and values.get(f"{key}.overrides")
        if key in _CONNECTION_LIMITS and BROKER_KEYS[key].parse(text) == 0 and not exempt:
            raise InvalidConfig(
                f"{name} cannot be 0 while the broker runs: no client could connect to change it"
            )
