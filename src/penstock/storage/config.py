"""The configs of a log: the topic configs that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.model.config.keys import LONG_MAX
from penstock.model.config.settings import TOPIC_CONFIG

FOREVER: Final = LONG_MAX
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log; immutable, replaced as a whole by `Log.reconfigure`."""

    cleanup_policy: frozenset[str] = TOPIC_CONFIG.choices("cleanup.policy")
    compression_type: str = TOPIC_CONFIG.text("compression.type")
    compression_gzip_level: int = TOPIC_CONFIG.integer("compression.gzip.level")
    compression_lz4_level: int = TOPIC_CONFIG.integer("compression.lz4.level")
    compression_zstd_level: int = TOPIC_CONFIG.integer("compression.zstd.level")
    delete_retention_ms: int = TOPIC_CONFIG.integer("delete.retention.ms")
    file_delete_delay_ms: int = TOPIC_CONFIG.integer("file.delete.delay.ms")
    flush_messages: int = TOPIC_CONFIG.integer("flush.messages")
    flush_ms: int = TOPIC_CONFIG.integer("flush.ms")
    index_interval_bytes: int = TOPIC_CONFIG.integer("index.interval.bytes")
    local_retention_bytes: int = TOPIC_CONFIG.integer("local.retention.bytes")
    local_retention_ms: int = TOPIC_CONFIG.integer("local.retention.ms")
    max_compaction_lag_ms: int = TOPIC_CONFIG.integer("max.compaction.lag.ms")
    max_message_bytes: int = TOPIC_CONFIG.integer("max.message.bytes")
    message_timestamp_after_max_ms: int = TOPIC_CONFIG.integer("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = TOPIC_CONFIG.integer("message.timestamp.before.max.ms")
    message_timestamp_type: str = TOPIC_CONFIG.text("message.timestamp.type")
    min_cleanable_dirty_ratio: float = TOPIC_CONFIG.number("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = TOPIC_CONFIG.integer("min.compaction.lag.ms")
    min_insync_replicas: int = TOPIC_CONFIG.integer("min.insync.replicas")
    penstock_link: str = TOPIC_CONFIG.text("penstock.link")
    penstock_record_decompressed_bytes_max: int = TOPIC_CONFIG.integer(
        "penstock.record.decompressed.bytes.max"
    )
    penstock_record_validation: str = TOPIC_CONFIG.text("penstock.record.validation")
    penstock_restoring: bool = TOPIC_CONFIG.flag("penstock.restoring")
    remote_log_copy_disable: bool = TOPIC_CONFIG.flag("remote.log.copy.disable")
    remote_log_delete_on_disable: bool = TOPIC_CONFIG.flag("remote.log.delete.on.disable")
    remote_storage_enable: bool = TOPIC_CONFIG.flag("remote.storage.enable")
    retention_bytes: int = TOPIC_CONFIG.integer("retention.bytes")
    retention_ms: int = TOPIC_CONFIG.integer("retention.ms")
    segment_bytes: int = TOPIC_CONFIG.integer("segment.bytes")
    segment_index_bytes: int = TOPIC_CONFIG.integer("segment.index.bytes")
    segment_jitter_ms: int = TOPIC_CONFIG.integer("segment.jitter.ms")
    segment_ms: int = TOPIC_CONFIG.integer("segment.ms")
    unclean_leader_election_enable: bool = TOPIC_CONFIG.flag("unclean.leader.election.enable")
    unclean_recovery_strategy: str = TOPIC_CONFIG.text("unclean.recovery.strategy")

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
