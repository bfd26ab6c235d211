"""A data directory: its partitions, its owner, and the manifest of its last clean shutdown.

    <path>/meta.json                                its owner: cluster, node, the directory's own id
    <path>/lock                                     held while a broker uses it
    <path>/reserve                                  space for files that must be written on a full disk, too
    <path>/clean-shutdown                           the manifest of a clean shutdown (`manifest`)
    <path>/recovery-point-offset-checkpoint         per log: below this everything is on the disk
    <path>/log-start-offset-checkpoint              per log: its log start offset
    <path>/local-log-start-offset-checkpoint        per log with records that only the archive has: where the
                                                    local ones start
    <path>/replication-offset-checkpoint            per log: its high watermark, or an earlier one
    <path>/topics, future, deleted, quarantine      the partitions (`folders`), and logs that were set aside
    <path>/moved                                    marks of partitions that are being moved (`moved_folders`)

Logs go to `deleted` only if the controller removed them by a committed record while the broker ran, if they
were moved to another directory (`moved_folders`), or if their quarantine entry expired. So the next start may
finish their deletion. Logs that a start finds and the metadata does not have go to the quarantine.

The manifest of a clean shutdown is removed durably as soon as the directory is opened. After a crash, the
next start finds no manifest and recovers the logs.

The event loop's thread owns a directory. Methods that only touch files say so, and run in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from penstock.model.ids import TopicPartition, format_topic_id
from penstock.model.steps import Steps, at_once
from penstock.ports import Clock, File, Files, Rng, Space
from penstock.storage.config import LogConfig
from penstock.storage.flush import FlushPlan
from penstock.storage.folders import DELETED, TOPICS, PartitionFolder, PartitionFolders, StoredPartition
from penstock.storage.health import Health
from penstock.storage.log import Log
from penstock.storage.log_opening import LogOpener
from penstock.storage.manifest import (
    CLEAN_SHUTDOWN,
    NO_REGISTRATION,
    LastShutdown,
    Registration,
    closing_entry,
    encode_manifest,
)
from penstock.storage.offset_checkpoints import Checkpoint, OffsetCheckpoints
from penstock.storage.ownership import DirectoryRefused, Owner, make_durably, own, refusal
from penstock.storage.quarantine import Quarantine, QuarantineEntry
from penstock.storage.removal import PartitionRemoval
from penstock.storage.reserve import Reserve
from penstock.storage.segments import SegmentCache

__all__ = ["MANY_FILES", "DataDirectory", "DirectoryRefused", "PartitionRemoval", "StoredPartition"]

_LOCK: Final = "lock"
#: logs whose offsets are collected in one slice, a microsecond each
_LOGS_AT_ONCE: Final = 1000
#: from this number of files on, one sync of the whole volume costs less than a sync per file
MANY_FILES: Final = 64


class DataDirectory:
    """One data directory of a broker, open until `close`.

    Why it has more than 25 methods: manifest, checkpoints and open logs have to name the same partitions.
    Each method that adds, removes or moves a partition updates all three.
    """

    def __init__(
        self, files: Files, path: str, lock: File, owner: Owner, manifest: bytes | None, clock: Clock | None
    ) -> None:
        """`manifest` is the content of its file, None if there was none."""
        self._files = files
        self.path = path
        self._lock = lock
        self.cluster_id = owner.cluster_id
        self.directory_id = owner.directory_id
        self.shutdown = LastShutdown(manifest, owner.directory_id)
        self._reserve = Reserve(files, path)
        self.health = Health(self._reserve.free)
        self.cache = SegmentCache()
        self._logs: dict[TopicPartition, Log] = {}
        self._checkpoints = OffsetCheckpoints(files, path, self.health)
        #: logs that `seal` has prepared: `close` need not do it again if their plans were carried out
        self._sealed: frozenset[Log] = frozenset()
        self.quarantine = Quarantine(files, path)
        self.folders = PartitionFolders(files, path, self.quarantine, clock)
        self._opener = LogOpener(
            files, self.folders, self.shutdown, self._checkpoints, self.health, self.cache
        )

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        rng: Rng,
        clock: Clock | None = None,
    ) -> DataDirectory:
        """Open `path`, formatting it if it is new; DirectoryRefused if it is another broker's, or in use.

        Without a `cluster_id` the directory keeps its own, or gets a new one if it has none.
        """
        try:
            if not files.exists(f"{path}/{TOPICS}"):
                make_durably(files, path)
            files.makedirs(f"{path}/{TOPICS}")
            lock = files.lock(f"{path}/{_LOCK}")
            owner = own(files, path, cluster_id, node_id, rng)
            if files.is_dir(f"{path}/{DELETED}"):
                files.rmtree(f"{path}/{DELETED}")
            files.makedirs(f"{path}/{DELETED}")
            manifest = None
            if files.exists(f"{path}/{CLEAN_SHUTDOWN}"):
                manifest = files.read(f"{path}/{CLEAN_SHUTDOWN}")
                files.remove(f"{path}/{CLEAN_SHUTDOWN}")
            files.sync_dir(path)
        except BlockingIOError as e:
            raise DirectoryRefused(f"{path} is in use by another broker: stop it, or use another path") from e
        except OSError as e:
            raise DirectoryRefused(f"{path} cannot be used: {refusal(e, path)}") from e
        directory = cls(files, path, lock, owner, manifest, clock)
        directory.keep_reserve()
        return directory

    def close(self, clean: bool = True, registration: Registration = NO_REGISTRATION) -> None:
        """Close every log that is still open; with `clean`, the next start needs no recovery.

        `registration` is the one that ends here. It touches files, and syncs logs that were not sealed: that
        belongs into a worker thread.
        """
        if clean:
            self.health.check()
        for log in self._logs.values():
            sealed = log in self._sealed and log.recovery_point == log.end_offset
            log.close(clean and not (sealed or log.is_untouched))
        if clean:
            self.checkpoint().write()
            self._write_manifest(registration)
        self._logs = {}
        self._lock.close()

    def _write_manifest(self, registration: Registration) -> None:
        logs = (
            closing_entry(key, self.folders.topic_id_text(key.topic), log) for key, log in self._logs.items()
        )
        manifest = encode_manifest(self.directory_id, registration, logs)
        try:
            self._files.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", manifest)
        except OSError as e:
            raise self.health.failed(e, f"cannot write {self.path}/{CLEAN_SHUTDOWN}") from e

    def seal(self) -> list[tuple[Log, FlushPlan]]:
        """Before `close`, behind the last append: write the files that the next start needs.

        The caller carries out the plans, or closes the directory as not clean. Touches files only.
        """
        self.health.check()
        logs = [log for log in self._logs.values() if not log.is_untouched]
        plans = [(log, log.seal()) for log in logs]
        self._sealed = frozenset(logs)
        return plans

    def sync(self, plans: Sequence[FlushPlan]) -> None:
        """Carry out plans of logs of this directory, in a worker thread; StorageError if one fails.

        Many plans are carried out by one sync of the whole volume: the sync of one file costs a disk as much.
        """
        synced = False
        if len(plans) >= MANY_FILES:
            # The lock file has been open since before the first write, so its sync reports every failed write
            # on the volume. The failed file may not be one of these: then each file is synced by itself.
            with suppress(OSError):
                synced = self._lock.sync_volume()
        for plan in plans:
            plan.sync(synced)

    def space(self) -> Space:
        """The bytes of the volume."""
        self.health.check()
        try:
            return self._files.space(self.path)
        except OSError as e:
            raise self.health.failed(e, f"cannot look at {self.path}") from e

    def keep_reserve(self) -> None:
        """Write the reserve; a disk without space for it is full from the start. Touches files only."""
        try:
            self._reserve.fill()
        except OSError as e:
            self.health.failed(e, f"cannot write {self._reserve.path}")

    def has_room(self) -> bool:
        """Returns true if a full disk has space again, including the reserve. Touches files only."""
        try:
            return self._reserve.refill()
        except OSError:
            return False

    def partitions(self) -> list[StoredPartition]:
        """The partition folders in the directory."""
        return self.folders.found()

    def put_back(self, moves: Iterable[tuple[PartitionFolder, StoredPartition]]) -> list[QuarantineEntry]:
        """Move folders that lie under other partitions' names to their own; see `PartitionFolders.put_back`.

        Their logs are recovered, and are unclean. StorageError if a folder cannot be moved.
        """
        self.health.check()
        try:
            moved, left = self.folders.put_back(moves)
        except OSError as e:
            raise self.health.path_failed(e, f"cannot move folders in {self.path}") from e
        for key, reason in moved.items():
            self.shutdown.distrust(key, reason)
        return left

    def holds(self, topic: str, partition: int) -> bool:
        return self._files.is_dir(self.partition_path(topic, partition))

    def partition_path(self, topic: str, partition: int) -> str:
        return self.folders.partition_path(topic, partition)

    def forget(self, partitions: Iterable[StoredPartition]) -> bool:
        """Before new partitions are created: forget earlier partitions of the same names.

        Returns true if another checkpoint has to be written first: recovery would apply offsets of the one
        on the disk to the new logs.
        """
        keys = {TopicPartition(topic, partition) for topic, partition, _ in partitions}
        self.shutdown.forget(keys)
        self._checkpoints.forget(keys)
        return self._checkpoints.may_be_written(keys)

    def create_partitions(self, partitions: Iterable[StoredPartition]) -> None:
        """Create partition folders durably. Touches files only; syncs once per topic."""
        self.health.check()
        try:
            self.folders.create(partitions)
        except OSError as e:
            raise self.health.path_failed(e, f"cannot make partitions in {self.path}") from e

    def open_log(
        self, topic: str, partition: int, config: LogConfig, clock: Clock, rng: Rng | None = None
    ) -> Log:
        """Open the log of a partition; it is closed with the directory, or by `close_log`."""
        log = self.load_log(topic, partition, config, clock, rng)
        self.adopt(topic, partition, log)
        return log

    def load_log(
        self, topic: str, partition: int, config: LogConfig, clock: Clock, rng: Rng | None = None
    ) -> Log:
        """As `open_log`, but touches files only; the owner of the directory has to `adopt` the log.

        A log that does not match the manifest of the last clean shutdown is recovered, and is in
        `shutdown.unclean`.
        """
        return self._opener.open(TopicPartition(topic, partition), config, clock, rng)

    def adopt(self, topic: str, partition: int, log: Log) -> None:
        """Add a log that `load_log` has opened."""
        key = TopicPartition(topic, partition)
        log.durability.before_truncation = lambda: self._before_truncation(key, log)
        log.save_start = self._write_checkpoint
        recorded = self._checkpoints.recorded_start(key, self.folders.topic_id_text(topic))
        log.saved_start = min(recorded or 0, log.log_start_offset)
        local = self._checkpoints.local_start(key, self.folders.topic_id_text(topic))
        log.saved_local_start = min(local, log.local_log_start_offset)
        self._opener.opened.add(key)
        self._logs[key] = log

    def _before_truncation(self, key: TopicPartition, log: Log) -> None:
        """Before a truncation: write a checkpoint if the one on the disk has a higher recovery point.

        That is rare: truncated records are usually newer than the last checkpoint.
        """
        if self._logs.get(key) is log:
            self._checkpoints.remember(key, self.folders.topic_id_text(key.topic), log)
        if self._checkpoints.is_above(key, log.recovery_point):
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        checkpoint = self.checkpoint()
        checkpoint.write()
        self.checkpointed(checkpoint)

    def close_log(self, topic: str, partition: int, clean: bool = True) -> None:
        key = TopicPartition(topic, partition)
        log = self._logs.pop(key, None)
        if log is not None:
            log.close(clean)
            self._checkpoints.remember(key, self.folders.topic_id_text(topic), log)

    def remove_partition(self, topic: str, partition: int) -> PartitionRemoval:
        """Remove one partition, whether its log is open or not."""
        self.let_go(topic, partition)
        return self.partition_removal(topic, partition)

    def partition_removal(self, topic: str, partition: int) -> PartitionRemoval:
        """The removal of a partition after `let_go`."""
        path, aside = self.partition_path(topic, partition), self.folders.aside(f"{topic}-{partition}")
        return PartitionRemoval(self._files, self.health, path, aside)

    def remove_topic(self, topic: str, partitions: Iterable[int]) -> PartitionRemoval:
        """Remove a topic in one step; `partitions` are all its partitions in this directory."""
        for partition in partitions:
            self.let_go(topic, partition)
        return self.topic_removal(topic)

    def topic_removal(self, topic: str) -> PartitionRemoval:
        """The removal of a topic after `let_go` for all of its partitions in this directory."""
        path, aside = self.folders.topic_path(topic), self.folders.aside(topic)
        return PartitionRemoval(self._files, self.health, path, aside)

    def quarantine_partition(self, topic: str, partition: int, reason: str) -> QuarantineEntry:
        """Set one partition aside; see `quarantine_partitions`."""
        return self.quarantine_partitions(topic, [partition], reason)

    def quarantine_partitions(
        self, topic: str, partitions: Iterable[int], reason: str, *, forget: bool = True
    ) -> QuarantineEntry:
        """Move partitions of one topic to the quarantine, durably. Nothing is deleted.

        Touches files. If it runs in a worker thread, `let_go` has to be called in the event loop's thread
        before. Without `forget`, the offsets of these names stay: they may belong to a misplaced folder.
        StorageError if the disk refuses.
        """
        indexes = list(partitions)
        for partition in indexes if forget else ():
            self.let_go(topic, partition)
        self.health.check()
        try:
            return self.folders.quarantine(topic, indexes, reason)
        except OSError as e:
            places = [self.partition_path(topic, partition) for partition in indexes]
            raise self.health.path_failed(e, f"cannot set aside {', '.join(places)}") from e

    def let_go(self, topic: str, partition: int) -> None:
        """Close a partition's log, if it is open, and forget its offsets."""
        key = TopicPartition(topic, partition)
        log = self._logs.pop(key, None)
        if log is not None:
            log.close(clean=False)
        self.shutdown.forget([key])
        self._checkpoints.forget([key])

    def take_over(self, stored: StoredPartition, log: Log) -> None:
        """Note the offsets of a log of another directory, whose folder is about to be moved to this one."""
        key, topic_id = TopicPartition(stored.topic, stored.partition), format_topic_id(stored.topic_id)
        self.forget([stored])
        self._opener.opened.add(key)
        self._checkpoints.remember(key, topic_id, log)
        self._checkpoints.keep_high_watermark(key, topic_id, log.high_watermark)

    @property
    def damaged_checkpoints(self) -> dict[str, str]:
        """Paths of the directory's offset checkpoints that could not be used, with the errors."""
        return self._checkpoints.damaged

    def checkpoint(self) -> Checkpoint:
        """The current offsets of the logs; `write` it in a worker thread."""
        return at_once(self.checkpoint_in_steps())

    def checkpoint_in_steps(self) -> Steps[Checkpoint]:
        """As `checkpoint`, in slices, for directories with many logs.

        Offsets only rise between two slices, and an earlier one is as good. A log that is truncated meanwhile
        notes its offsets again (`_before_truncation`), and one that is removed is forgotten.
        """
        for number, (key, log) in enumerate(list(self._logs.items()), 1):
            if self._logs.get(key) is log:
                self._checkpoints.remember(key, self.folders.topic_id_text(key.topic), log)
            if not number % _LOGS_AT_ONCE:
                yield
        return self._checkpoints.take()

    def keep_high_watermark(self, topic: str, partition: int) -> None:
        """Checkpoint a log's high watermark from now on: a log with other replicas cannot derive it."""
        key = TopicPartition(topic, partition)
        topic_id, high_watermark = self.folders.topic_id_text(topic), self._logs[key].high_watermark
        self._checkpoints.keep_high_watermark(key, topic_id, high_watermark)

    def checkpoint_high_watermarks(self) -> Checkpoint | None:
        """The current high watermarks; `write` it in a worker thread. None if there are none."""
        return self._checkpoints.take_high_watermarks(self._logs)

    def checkpointed(self, written: Checkpoint) -> None:
        """`written` is on the disk, and replaces earlier checkpoints there."""
        self._checkpoints.written(written)
        for key, start in written.log_starts.items():
            log = self._logs.get(key)
            if log is not None:
                log.saved_start = start
                log.saved_local_start = written.local_starts.get(key, 0)
