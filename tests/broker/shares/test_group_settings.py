"""Settings of groups and topics are cached by name only where there are configs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.broker.shares.group_settings import SharesConfig
from penstock.metadata.configs import GROUP
from penstock.metadata.image import TOPIC
from penstock.model.config import BrokerConfig


def test_names_without_configs_share_one_entry() -> None:
    """Clients choose the ids of groups: an entry for each would grow without bound."""
    image: Any = SimpleNamespace(configs={(GROUP, "jobs"): {"share.delivery.count.limit": "3"}})
    config = SharesConfig(BrokerConfig(), image)
    for number in range(100):
        assert config.of(f"group-{number}").limits.delivery_count == 5
        assert config.topic(f"topic-{number}").delay_ms == 0
    assert config.of("jobs").limits.delivery_count == 3
    assert config.of("jobs") is config.of("jobs")
    assert config.entries == 3


def test_changed_configs_are_read_again() -> None:
    image: Any = SimpleNamespace(configs={})
    config = SharesConfig(BrokerConfig(), image)
    assert config.topic("later").delay_ms == 0
    image.configs[TOPIC, "later"] = {"penstock.delivery.delay.ms": "7"}
    config.changed()
    assert config.topic("later").delay_ms == 7
