"""Opens the logs of a data directory, each as the manifest of the last clean shutdown describes it.

A log that matches the manifest is trusted without a recovery. Any other log is recovered.
"""

from __future__ import annotations

from penstock.model.ids import METADATA_TOPIC, TopicPartition
from penstock.ports import Clock, Files, Rng
from penstock.storage.config import LogConfig
from penstock.storage.folders import PartitionFolders
from penstock.storage.health import Health
from penstock.storage.holes import held_end
from penstock.storage.log import Log
from penstock.storage.manifest import NOT_LISTED, LastShutdown, LoggedState, log_entry, mismatch
from penstock.storage.offset_checkpoints import OffsetCheckpoints
from penstock.storage.scrub import restore_damage
from penstock.storage.segments import SegmentCache
from penstock.storage.transaction_rebuild import restore_indexes

__all__ = ["LogOpener"]


class LogOpener:
    """Opens logs. `open` touches files only, and runs in worker threads, for one log at a time each."""

    def __init__(
        self,
        files: Files,
        folders: PartitionFolders,
        shutdown: LastShutdown,
        checkpoints: OffsetCheckpoints,
        health: Health,
        cache: SegmentCache,
    ) -> None:
        self._files = files
        self._folders = folders
        self._shutdown = shutdown
        self._checkpoints = checkpoints
        self._health = health
        self._cache = cache
        #: logs that this process has had open: the manifest does not have their later changes
        self.opened: set[TopicPartition] = set()

    def open(self, key: TopicPartition, config: LogConfig, clock: Clock, rng: Rng | None) -> Log:
        """The log of a partition; `LastShutdown.unclean` has the reason if it does not match the manifest."""
        first = self._shutdown.clean and key not in self.opened
        expected = self._shutdown.expected(key) if first else None
        log = self._load(key, config, clock, rng, expected)
        if expected is None:
            if first and log.end_offset:
                self._shutdown.unclean.setdefault(key, NOT_LISTED)
            return log
        reason = mismatch(expected, log_entry(key, self._folders.topic_id_text(key.topic), log))
        if reason is None:
            restore_damage(log, expected.damage)
            log.restore_high_watermark(min(expected.high_watermark, held_end(log)))
            with self._health.disk(f"open {log.path}"):
                restore_indexes(log, self._files, expected.aborted)
            return log
        self._shutdown.unclean[key] = reason
        if key.topic == METADATA_TOPIC:
            # Recovery would report missing records as damage in the middle of the log. A voter fetches them
            # from the quorum instead.
            return log
        log.close(clean=False)
        return self._load(key, config, clock, rng, None)

    def _load(
        self, key: TopicPartition, config: LogConfig, clock: Clock, rng: Rng | None, known: LoggedState | None
    ) -> Log:
        log = Log.open(
            self._files,
            self._folders.partition_path(*key),
            config,
            clock,
            clean=known is not None,
            closed=None if known is None else known.closed,
            recovery_point=self._checkpoints.recovery_points.get(key, 0),
            log_start_offset=self._checkpoints.log_starts.get(key, 0),
            start_recorded=self._checkpoints.recorded_start(key) is not None,
            rng=rng,
            health=self._health,
            cache=self._cache,
        )
        log.durability.unsynced_identity = self._folders.unsynced_identity(*key)
        # An older high watermark does no harm: fetches from the leader, or of the followers, advance it.
        log.restore_high_watermark(min(self._checkpoints.high_watermarks.get(key, 0), held_end(log)))
        return log
