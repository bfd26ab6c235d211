"""A topic's config as the check of a client's batches needs it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from penstock.storage.config import FOREVER, LogConfig

__all__ = ["Rules", "rules_of", "rules_without_clock"]

#: for how many configs rules are remembered: topics hardly have that many different ones
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
        #: whether a record may be too old
        self.is_bounded = self.before_max_ms < FOREVER and not self.log_append_time
        #: whether the topic asks for something that only records tell
        self.walk = self.compact or self.is_bounded
        level = config.penstock_record_validation
        #: whether the frame of a client's compressed batch is checked, and whether all its records are
        self.frames = level in {"frame", "records"}
        self.records = level == "records"
        self.decompressed_bytes_max = config.penstock_record_decompressed_bytes_max


@lru_cache(_RULES_KEPT)
def rules_of(config: LogConfig) -> Rules:
    """Logs with the same config share their rules: those of many logs stay in the processor's caches."""
    return Rules(config)


@lru_cache(_RULES_KEPT)
def rules_without_clock(config: LogConfig) -> Rules:
    """As `rules_of`, for a wall clock that is not trusted: it must not refuse timestamps."""
    return Rules(
        replace(config, message_timestamp_after_max_ms=FOREVER, message_timestamp_before_max_ms=FOREVER)
    )
