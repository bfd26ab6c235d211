from __future__ import annotations

from dataclasses import replace

from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.rules import rules_of, rules_without_clock

CONFIG = LogConfig(segment_bytes=12_345)


def test_logs_with_equal_configs_share_their_rules() -> None:
    assert rules_of(CONFIG) is rules_of(CONFIG)
    assert rules_of(replace(CONFIG)) is rules_of(CONFIG)
    assert rules_of(replace(CONFIG, segment_bytes=1)) is not rules_of(CONFIG)


def test_rules_of_many_configs_are_their_own() -> None:
    """More configs than are remembered: a new config at the address of a freed one has its own rules."""
    for size in range(1, 500):
        assert rules_of(LogConfig(segment_bytes=size)).segment_bytes == size


def test_without_a_clock_no_timestamp_is_refused() -> None:
    assert rules_without_clock(CONFIG) is rules_without_clock(replace(CONFIG))
    assert rules_without_clock(CONFIG).after_max_ms == FOREVER
    assert rules_of(CONFIG).after_max_ms == CONFIG.message_timestamp_after_max_ms
