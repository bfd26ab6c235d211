"""The configs of a log: Kafka's topic configs under Kafka's names and defaults.

A field is the config's name with dots turned into underscores. Values are typed, and were
validated when they were parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FOREVER: Final = 2**63 - 1
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log; immutable, replaced as a whole by `Log.reconfigure`."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    index_interval_bytes: int = 4096
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    penstock_record_decompressed_bytes_max: int = 100 * 1024 * 1024
    penstock_record_validation: str = "records"
    preallocate: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False
    unclean_recovery_strategy: str = "balanced"

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def segment_ms_max(self) -> int:
        """How long a segment may stay open: a compacted topic also honours its compaction lag."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms
