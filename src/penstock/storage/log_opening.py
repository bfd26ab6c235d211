"""Opens the logs of a data directory, each as the manifest of the last clean shutdown describes it.

A log that matches the manifest is trusted without a recovery. Any other log is recovered.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.model.ids import METADATA_TOPIC, TopicPartition
from penstock.ports import Clock, Files, Rng
from penstock.storage.checkpoint_lines import is_of_topic
from penstock.storage.config import LogConfig
from penstock.storage.folders import PartitionFolders
from penstock.storage.health import Health
from penstock.storage.holes import held_end
from penstock.storage.index_proofs import prove_indexes
from penstock.storage.log import Log
from penstock.storage.manifest import NOT_LISTED, OTHER_EPOCHS, LastShutdown, LoggedState, log_entry, mismatch
from penstock.storage.offset_checkpoints import OffsetCheckpoints
from penstock.storage.scrub import restore_damage
from penstock.storage.seals import LogOwner
from penstock.storage.segments import SegmentCache

__all__ = ["LogOpener"]


#: a snapshot of the metadata log: its end offset and its epoch
_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")


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
        topic_id = self._folders.topic_id_text(key.topic)
        if expected is not None and not is_of_topic(expected.topic_id, topic_id):
            # The manifest is older than the topic, which was deleted and created again.
            self._shutdown.unclean[key] = f"its topic id is {topic_id} instead of {expected.topic_id}"
            expected = None
        log = self._load(key, topic_id, config, clock, rng, expected, clean=expected is not None)
        if expected is None:
            if first and log.end_offset and key not in self._shutdown.arrived:
                self._shutdown.unclean.setdefault(key, NOT_LISTED)
            self._prove(log, None)
            return log
        reason = mismatch(expected, log_entry(key, topic_id, log))
        if reason is None:
            if log.recovery.other_epochs:
                self._shutdown.unclean[key] = OTHER_EPOCHS
            restore_damage(log, expected.damage)
            log.restore_high_watermark(min(expected.high_watermark, held_end(log)))
            self._prove(log, expected)
            return log
        self._shutdown.unclean[key] = reason
        if key.topic == METADATA_TOPIC:
            # Recovery would report missing records as damage in the middle of the log. A voter fetches them
            # from the quorum instead.
            return log
        log.close(clean=False)
        log = self._load(key, topic_id, config, clock, rng, expected, clean=False)
        self._prove(log, None)
        return log

    def _prove(self, log: Log, matching: LoggedState | None) -> None:
        """Check or rebuild the transaction indexes; `matching` is the manifest's entry if the log matches."""
        with self._health.disk(f"open {log.path}"):
            prove_indexes(log, self._files, None if matching is None else matching.aborted)

    def _recorded_start(
        self, key: TopicPartition, topic_id: str, expected: LoggedState | None, clean: bool
    ) -> int | None:
        """The log start below which segments may have been removed; None if none is recorded.

        The manifest has the log start, too. It was written last, so that it decides for a log that matches
        it: a checkpoint with another log start is an older copy. Why it is used for other logs: without the
        checkpoint, a log that has lost its first segment would start at the next one, and as leader make its
        followers delete their copies.
        """
        recorded = self._checkpoints.recorded_start(key, topic_id)
        if key.topic == METADATA_TOPIC:
            # Only a snapshot replaces the records before it, whatever a file beside the log says.
            snapshot = _snapshot_end(self._files, self._folders.partition_path(*key))
            recorded = None if recorded is None else min(recorded, snapshot)
            expected = expected and expected._replace(
                log_start_offset=min(expected.log_start_offset, snapshot)
            )
        if expected is None:
            return recorded
        if recorded is None or clean:
            return expected.log_start_offset
        return max(recorded, expected.log_start_offset)

    def _local_start(
        self, key: TopicPartition, topic_id: str, expected: LoggedState | None, clean: bool
    ) -> int:
        """The offset below which only the archive has to have the records.

        For a log that matches the manifest, that of the manifest, which was written last.
        """
        recorded = self._checkpoints.local_start(key, topic_id)
        if expected is None:
            return recorded
        return expected.local_start if clean else max(recorded, expected.local_start)

    def _is_explained(
        self, key: TopicPartition, topic_id: str, expected: LoggedState | None, clean: bool
    ) -> bool:
        """Whether retention or DeleteRecords has moved the log start to where it is.

        If all records of the log start are lost, the log starts at its first segment, and nothing says why.
        """
        explained = None if clean else self._checkpoints.is_explained(key, topic_id)
        return expected is not None and not expected.unexplained if explained is None else explained

    def _recovery_point(self, key: TopicPartition, topic_id: str, expected: LoggedState | None) -> int:
        """The offset below which everything was on the disk: after a clean shutdown, the log's end."""
        recorded = self._checkpoints.recovery_point(key, topic_id)
        return recorded if expected is None else max(recorded, expected.end_offset)

    def _load(
        self,
        key: TopicPartition,
        topic_id: str,
        config: LogConfig,
        clock: Clock,
        rng: Rng | None,
        expected: LoggedState | None,
        *,
        clean: bool,
    ) -> Log:
        """Open a log; with `clean` it is taken to be as `expected`, the manifest's entry, describes it."""
        start = self._recorded_start(key, topic_id, expected, clean)
        high_watermark = self._checkpoints.high_watermark(key, topic_id)
        log = Log.open(
            self._files,
            self._folders.partition_path(*key),
            config,
            clock,
            clean=clean,
            closed=expected.closed if clean and expected is not None else None,
            recovery_point=self._recovery_point(key, topic_id, expected),
            log_start_offset=self._checkpoints.log_start(key, topic_id) if start is None else start,
            local_log_start_offset=self._local_start(key, topic_id, expected, clean),
            start_recorded=start is not None,
            high_watermark=high_watermark,
            rng=rng,
            health=self._health,
            cache=self._cache,
            owner=LogOwner.of(topic_id, key.partition),
        )
        if not self._is_explained(key, topic_id, expected, clean):
            log.explained_start = 0
        log.durability.unsynced_identity = self._folders.unsynced_identity(*key)
        # An older high watermark does no harm: fetches from the leader, or of the followers, advance it.
        log.restore_high_watermark(min(high_watermark, held_end(log)))
        return log


def _snapshot_end(files: Files, path: str) -> int:
    """The end of the newest snapshot beside the metadata log; 0 without one."""
    names = files.listdir(path) if files.is_dir(path) else []
    return max((int(found[1]) for name in names if (found := _SNAPSHOT.fullmatch(name))), default=0)
