"""A topic's config as the check of a client's batches needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.storage.config import FOREVER, LogConfig

__all__ = ["Rules", "rules_of", "rules_without_clock"]

#: configs whose rules are remembered; few topics differ in their configs
_RULES_KEPT: Final = 64


class Rules:
    """A topic's config as `validate` needs it: worked out once, not once per batch."""

    __slots__ = (
        "after_max_ms",
        "ahead_max_ms",
        "before_max_ms",
        "compact",
        "decompressed_bytes_max",
        "frames",
        "is_bounded",
        "log_append_time",
        "message_bytes_max",
        "records",
        "segment_bytes",
        "walk",
    )

    def __init__(self, config: LogConfig) -> None:
        self.message_bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.log_append_time = config.log_append_time
        #: how far ahead of the broker's clock a producer's timestamps may be, if they are kept at all
        self.ahead_max_ms = FOREVER if self.log_append_time else self.after_max_ms
        self.compact = config.compact
        #: true if a record may be too old
        self.is_bounded = self.before_max_ms < FOREVER and not self.log_append_time
        #: true if a config of the topic needs a check of every record
        self.walk = self.compact or self.is_bounded
        level = config.penstock_record_validation
        #: true if the frame of a client's compressed batch is checked, and whether all its records are
        self.frames = level in {"frame", "records"}
        self.records = level == "records"
        self.decompressed_bytes_max = config.penstock_record_decompressed_bytes_max


class _SharedRules:
    """Rules by config. The partitions of a topic share one config object, which is found by its identity.

    Why: the hash of a config covers all its fields, and a start looks up the rules of every partition.
    """

    def __init__(self) -> None:
        #: by the identity of the config, which is kept so that the identity stays its own
        self._by_identity: dict[int, tuple[LogConfig, Rules]] = {}
        self._by_value: dict[LogConfig, Rules] = {}

    def of(self, config: LogConfig, effective: Callable[[LogConfig], LogConfig]) -> Rules:
        known = self._by_identity.get(id(config))
        if known is not None:
            return known[1]
        rules = self._by_value.get(config)
        if rules is None:
            rules = Rules(effective(config))
        if len(self._by_identity) >= _RULES_KEPT:
            self._by_identity, self._by_value = {}, {}
        self._by_value[config] = rules
        self._by_identity[id(config)] = (config, rules)
        return rules


_WITH_CLOCK: Final = _SharedRules()
_WITHOUT_CLOCK: Final = _SharedRules()


def rules_of(config: LogConfig) -> Rules:
    """Logs with the same config share their rules: those of many logs stay in the processor's caches."""
    return _WITH_CLOCK.of(config, lambda config: config)


def rules_without_clock(config: LogConfig) -> Rules:
    """As `rules_of`, for a wall clock that is not trusted: it must not refuse timestamps."""
    return _WITHOUT_CLOCK.of(config, _without_limits)


def _without_limits(config: LogConfig) -> LogConfig:
    return replace(config, message_timestamp_after_max_ms=FOREVER, message_timestamp_before_max_ms=FOREVER)
