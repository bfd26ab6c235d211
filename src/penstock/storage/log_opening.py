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
from penstock.storage.manifest import NOT_LISTED, OTHER_EPOCHS, LastShutdown, LoggedState, log_entry, mismatch
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
        log = self._load(key, config, clock, rng, expected, clean=expected is not None)
        if expected is None:
            if first and log.end_offset:
                self._shutdown.unclean.setdefault(key, NOT_LISTED)
            return log
        reason = mismatch(expected, log_entry(key, self._folders.topic_id_text(key.topic), log))
        if reason is None:
            if log.recovery.other_epochs:
                self._shutdown.unclean[key] = OTHER_EPOCHS
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
        return self._load(key, config, clock, rng, expected, clean=False)

    def _recorded_start(self, key: TopicPartition, expected: LoggedState | None) -> int | None:
        """The log start below which segments may have been removed; None if none is recorded.

        The manifest has the log start, too. Why it is used: without the checkpoint, a log that has lost its
        first segment would start at the next one, and as leader make its followers delete their copies.
        """
        recorded = self._checkpoints.recorded_start(key)
        return expected.log_start_offset if recorded is None and expected is not None else recorded

    def _is_explained(self, key: TopicPartition, expected: LoggedState | None) -> bool:
        """Whether retention or DeleteRecords has moved the log start to where it is.

        If all records of the log start are lost, the log starts at its first segment, and nothing says why.
        """
        explained = self._checkpoints.is_explained(key)
        return expected is not None and not expected.unexplained if explained is None else explained

    def _recovery_point(self, key: TopicPartition, expected: LoggedState | None) -> int:
        """The offset below which everything was on the disk: after a clean shutdown, the log's end."""
        recorded = self._checkpoints.recovery_points.get(key, 0)
        return recorded if expected is None else max(recorded, expected.end_offset)

    def _load(
        self,
        key: TopicPartition,
        config: LogConfig,
        clock: Clock,
        rng: Rng | None,
        expected: LoggedState | None,
        *,
        clean: bool,
    ) -> Log:
        """Open a log; with `clean` it is taken to be as `expected`, the manifest's entry, describes it."""
        start = self._recorded_start(key, expected)
        high_watermark = self._checkpoints.high_watermarks.get(key, 0)
        log = Log.open(
            self._files,
            self._folders.partition_path(*key),
            config,
            clock,
            clean=clean,
            closed=expected.closed if clean and expected is not None else None,
            recovery_point=self._recovery_point(key, expected),
            log_start_offset=self._checkpoints.log_starts.get(key, 0) if start is None else start,
            start_recorded=start is not None,
            high_watermark=high_watermark,
            rng=rng,
            health=self._health,
            cache=self._cache,
        )
        if not self._is_explained(key, expected):
            log.explained_start = 0
        log.durability.unsynced_identity = self._folders.unsynced_identity(*key)
        # An older high watermark does no harm: fetches from the leader, or of the followers, advance it.
        log.restore_high_watermark(min(high_watermark, held_end(log)))
        return log
