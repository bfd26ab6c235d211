"""The checkpoint files of a data directory: the offsets on the disk, and the offsets to write next.

Three files have a line per log: its recovery point, its log start offset, and its high watermark. A fourth
has the local log starts of logs whose first records are only in the archive of tiered storage. The event
loop's thread owns the state in memory. A `Checkpoint` is a copy of one moment, which any thread may write.

A line has the id of the log's topic (`checkpoint_lines`), and says nothing about another topic of the same
name. Why: an older checkpoint that was put back has the offsets of a topic that was deleted since, and a log
start of that topic would hide all records of its successor.

A log start in a checkpoint was on the disk before any segment below it was removed, so a first segment that
begins beyond it has lost its predecessors. A log without a line, and every log in a checkpoint of version 0
(written by release 0.1.0, which removed segments first), has no such record.

The recovery point checkpoint has the log start, too, if it is such a record, and the local log start. They
are used if their own checkpoint is missing or damaged, or is of an earlier version: both are written before
segments are removed, so a file of an earlier version beside a newer one is an older copy.

A log start is `unexplained` if neither retention nor DeleteRecords moved it there: the record was lost, and
the log starts at its first segment. Followers do not adopt it.

Invariants: a recovery point on the disk is never above the log's own when the log is cut; of two checkpoints
the later one stays, whichever thread is done first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Final, Protocol

from penstock.model.ids import TopicPartition
from penstock.ports import Files
from penstock.storage.checkpoint_lines import (
    HIGH_WATERMARKS,
    LOCAL_STARTS,
    LOG_STARTS,
    RECOVERY_POINTS,
    UNEXPLAINED,
    UNVERIFIED,
    CheckpointLine,
    format_lines,
    has_topic_ids,
    is_of_topic,
    parse_lines,
)
from penstock.storage.health import Health

__all__ = ["Checkpoint", "OffsetCheckpoints", "protect_restored"]

#: a high watermark that is lowered to the log's end when the log is opened
_ALL_OF_IT: Final = 2**63 - 1
#: the topic id of a line that has none
_UNKNOWN: Final = "-"


class _Offsets(Protocol):
    """The offsets of a log that the checkpoints have."""

    @property
    def recovery_point(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def local_log_start_offset(self) -> int: ...
    @property
    def explained_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class _Newest:
    """The number of the checkpoint in each file; the lock is held while one is written."""

    __slots__ = ("high_watermarks", "lock", "numbers")

    def __init__(self) -> None:
        self.lock = Lock()
        self.numbers: dict[str, int] = {}
        #: high watermarks and topic ids in the file that this process has written last
        self.high_watermarks: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, str]] | None = None


class Checkpoint:
    """Offsets of one moment, to be written by a worker thread."""

    __slots__ = (
        "_files",
        "_health",
        "_marks",
        "_newest",
        "_offsets",
        "_path",
        "_topic_ids",
        "local_starts",
        "log_starts",
        "number",
        "partitions",
        "recovery_points",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        health: Health,
        newest: _Newest,
        number: int,
        contents: Mapping[str, Mapping[TopicPartition, int]],
        topic_ids: Mapping[str, Mapping[TopicPartition, str]],
        marks: Mapping[TopicPartition, str],
    ) -> None:
        """`topic_ids` are by file. `marks` are the last fields of the lines of log starts that have one."""
        self._files = files
        self._path = path
        self._health = health
        self._newest = newest
        #: later ones have higher ones
        self.number = number
        starts = contents.get(LOG_STARTS, {})
        self.log_starts = {key: start for key, start in starts.items() if marks.get(key) != UNVERIFIED}
        self.recovery_points = dict(contents.get(RECOVERY_POINTS, {}))
        self.local_starts = dict(contents.get(LOCAL_STARTS, {}))
        self._offsets = {name: dict(offsets) for name, offsets in contents.items()}
        self._topic_ids = {name: dict(topic_ids[name]) for name in contents}
        self._marks = dict(marks)
        #: that it speaks of
        self.partitions = frozenset[TopicPartition]().union(*contents.values())

    def write(self) -> None:
        with self._newest.lock:
            for name in self._offsets:
                if self._newest.numbers.get(name, -1) < self.number:
                    if not self._is_written(name):
                        self._write(name, format_lines(self._lines(name)))
                    self._newest.numbers[name] = self.number

    def _is_written(self, name: str) -> bool:
        """Returns true if the file of high watermarks has these already."""
        if name != HIGH_WATERMARKS:
            return False
        content = self._offsets[name], self._topic_ids[name]
        if self._newest.high_watermarks == content and self._files.exists(f"{self._path}/{name}"):
            return True
        self._newest.high_watermarks = None
        return False

    def _lines(self, name: str) -> Iterator[CheckpointLine]:
        """The lines of one file; those of recovery points have the log starts, if they are recorded."""
        topic_ids, marks = self._topic_ids[name], self._marks if name in (LOG_STARTS, RECOVERY_POINTS) else {}
        starts = self.log_starts if name == RECOVERY_POINTS else None
        for key, offset in self._offsets[name].items():
            if starts is None:
                numbers: tuple[int, ...] = (offset,)
                mark = marks.get(key, "")
            else:
                start, local = starts.get(key), self.local_starts.get(key)
                numbers = (offset,) if start is None else (offset, start)
                if start is not None and local is not None:
                    numbers = (offset, start, local)
                mark = "" if start is None else marks.get(key, "")
            yield CheckpointLine(key, topic_ids.get(key, _UNKNOWN), numbers, mark)

    def _write(self, name: str, content: bytes) -> None:
        try:
            self._files.write_atomic(f"{self._path}/{name}", content)
        except OSError as e:
            raise self._health.failed(e, f"cannot write {self._path}/{name}") from e
        if name == HIGH_WATERMARKS:
            self._newest.high_watermarks = self._offsets[name], self._topic_ids[name]


class OffsetCheckpoints:
    """Offsets of the logs of one directory, those of logs that have not been opened included."""

    def __init__(self, files: Files, path: str, health: Health) -> None:
        self._files = files
        self._path = path
        self._health = health
        self._newest = _Newest()
        self._numbers = count()
        #: paths of files that could not be used, with the errors
        self.damaged: dict[str, str] = {}
        #: `UNVERIFIED` for keys of `log_starts` that say nothing about which segments must exist,
        #: `UNEXPLAINED` for those that followers must not adopt
        self._marks: dict[TopicPartition, str] = {}
        #: by file: the topic ids of its lines
        self._topic_ids: dict[str, dict[TopicPartition, str]] = {
            name: {} for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS, LOCAL_STARTS)
        }
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        #: the local log starts that the recovery point checkpoint has
        self._other_local_starts: dict[TopicPartition, int] = {}
        self._read_starts_and_points()
        self.high_watermarks = self._read(HIGH_WATERMARKS)
        #: of the logs whose local log start is above their log start
        self.local_starts = self._read_local_starts()
        self._knows_local_starts = bool(self.local_starts)
        self._knows_high_watermarks = bool(self.high_watermarks)
        #: logs that the checkpoints on the disk may list, and the highest recovery points that they may have
        self._checkpointed = self._keys()
        self._written = dict(self.recovery_points)
        self._latest = -1

    def _content(self, name: str) -> bytes | None:
        """The content of a file; None if it is missing, which is as good as an empty one."""
        try:
            return self._files.read(f"{self._path}/{name}")
        except FileNotFoundError:
            return None

    def _lines_of(self, name: str, data: bytes | None) -> list[CheckpointLine]:
        """The lines of a file; none if it is missing or damaged: then all has to be looked at."""
        try:
            lines = [] if data is None else list(parse_lines(data))
        except ValueError as e:
            self.damaged[f"{self._path}/{name}"] = str(e)
            return []
        self._topic_ids[name] = {line.key: line.topic_id for line in lines}
        return lines

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """The first offset of each line of a file."""
        return {line.key: line.offsets[0] for line in self._lines_of(name, self._content(name))}

    def _read_local_starts(self) -> dict[TopicPartition, int]:
        """The local log starts, of the recovery point checkpoint if their own cannot be used."""
        data = self._content(LOCAL_STARTS)
        found = {line.key: line.offsets[0] for line in self._lines_of(LOCAL_STARTS, data)}
        if data is None or f"{self._path}/{LOCAL_STARTS}" in self.damaged:
            found = dict(self._other_local_starts)
            self._topic_ids[LOCAL_STARTS] = {key: self._topic_ids[RECOVERY_POINTS][key] for key in found}
        return found

    def _read_starts_and_points(self) -> None:
        """Read recovery points and log starts, each from its file.

        If the file of the log starts cannot be used, they come from the recovery point checkpoint.
        """
        starts, points = self._content(LOG_STARTS), self._content(RECOVERY_POINTS)
        have_ids = [data is not None and has_topic_ids(data) for data in (starts, points)]
        if any(have_ids):
            starts = self._current(LOG_STARTS, starts, have_ids[0])
            points = self._current(RECOVERY_POINTS, points, have_ids[1])
        recorded = self._lines_of(RECOVERY_POINTS, points)
        self.recovery_points = {line.key: line.offsets[0] for line in recorded}
        self._other_local_starts = {line.key: line.offsets[2] for line in recorded if len(line.offsets) > 2}
        found = self._lines_of(LOG_STARTS, starts)
        if starts is None or f"{self._path}/{LOG_STARTS}" in self.damaged:
            found = [line._replace(offsets=line.offsets[1:]) for line in recorded if len(line.offsets) > 1]
            self._topic_ids[LOG_STARTS] = {line.key: line.topic_id for line in found}
        self.log_starts = {line.key: line.offsets[0] for line in found}
        self._marks = {line.key: line.mark for line in found if line.mark}

    def _current(self, name: str, data: bytes | None, has_ids: bool) -> bytes | None:
        """`data`, or None if it is an older copy: the other file has topic ids, and this one has none."""
        if data is None or has_ids:
            return data
        self.damaged[f"{self._path}/{name}"] = "it is an older copy: it has no topic ids"
        return None

    def _is_of(self, name: str, key: TopicPartition, topic_id: str) -> bool:
        """Returns true if the offset of `key` in a file may be that of the topic with `topic_id`."""
        return is_of_topic(self._topic_ids[name].get(key, _UNKNOWN), topic_id)

    def log_start(self, key: TopicPartition, topic_id: str) -> int:
        """The log start, recorded or not verified; 0 if there is none for this topic."""
        return self.log_starts.get(key, 0) if self._is_of(LOG_STARTS, key, topic_id) else 0

    def recorded_start(self, key: TopicPartition, topic_id: str) -> int | None:
        """The start below which segments may have been removed; None if none is recorded."""
        if self._marks.get(key) == UNVERIFIED or not self._is_of(LOG_STARTS, key, topic_id):
            return None
        return self.log_starts.get(key)

    def is_explained(self, key: TopicPartition, topic_id: str) -> bool | None:
        """Returns true if a recorded start has a reason, or is of a release that recorded none."""
        if key not in self.log_starts or not self._is_of(LOG_STARTS, key, topic_id):
            return None
        return self._marks.get(key) != UNEXPLAINED

    def local_start(self, key: TopicPartition, topic_id: str) -> int:
        """The local log start; 0 if none is recorded, as of a log with all of its records."""
        return self.local_starts.get(key, 0) if self._is_of(LOCAL_STARTS, key, topic_id) else 0

    def recovery_point(self, key: TopicPartition, topic_id: str) -> int:
        """The recovery point; 0 if none is recorded."""
        return self.recovery_points.get(key, 0) if self._is_of(RECOVERY_POINTS, key, topic_id) else 0

    def high_watermark(self, key: TopicPartition, topic_id: str) -> int:
        """The high watermark; 0 if none is recorded."""
        return self.high_watermarks.get(key, 0) if self._is_of(HIGH_WATERMARKS, key, topic_id) else 0

    def _keys(self) -> set[TopicPartition]:
        return {*self.recovery_points, *self.log_starts, *self.high_watermarks, *self.local_starts}

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self.recovery_points.pop(key, None)
            self.log_starts.pop(key, None)
            self._marks.pop(key, None)
            self.high_watermarks.pop(key, None)
            self.local_starts.pop(key, None)
            for topic_ids in self._topic_ids.values():
                topic_ids.pop(key, None)

    def may_be_written(self, keys: Iterable[TopicPartition]) -> bool:
        """Returns true if a checkpoint on the disk may speak of one of `keys`."""
        return not self._checkpointed.isdisjoint(keys)

    def remember(self, key: TopicPartition, topic_id: str, log: _Offsets) -> None:
        """Note the offsets of a log of the topic with `topic_id`."""
        for topic_ids in self._topic_ids.values():
            topic_ids[key] = topic_id
        self.recovery_points[key] = log.recovery_point
        if key in self.high_watermarks:
            self.high_watermarks[key] = log.high_watermark
        self.log_starts[key] = log.log_start_offset
        if log.local_log_start_offset > log.log_start_offset:
            self.local_starts[key] = log.local_log_start_offset
            self._knows_local_starts = True
        else:
            self.local_starts.pop(key, None)
        if log.explained_start < log.log_start_offset:
            self._marks[key] = UNEXPLAINED
        else:
            self._marks.pop(key, None)

    def keep_high_watermark(self, key: TopicPartition, topic_id: str, offset: int) -> None:
        """Have the high watermark of a log of the topic with `topic_id` checkpointed."""
        self._topic_ids[HIGH_WATERMARKS][key] = topic_id
        self.high_watermarks[key] = offset
        self._knows_high_watermarks = True

    def is_above(self, key: TopicPartition, offset: int) -> bool:
        """Returns true if a recovery point on the disk, or on its way there, may be above `offset`."""
        return self._written.get(key, 0) > offset

    def take(self) -> Checkpoint:
        """All that is remembered now."""
        self._checkpointed |= self._keys()
        for key, offset in self.recovery_points.items():
            if offset > self._written.get(key, 0):
                self._written[key] = offset
        contents: dict[str, Mapping[TopicPartition, int]] = {
            LOG_STARTS: self.log_starts,
            RECOVERY_POINTS: self.recovery_points,
        }
        if self._knows_high_watermarks:
            contents[HIGH_WATERMARKS] = self.high_watermarks
        if self._knows_local_starts:
            contents[LOCAL_STARTS] = self.local_starts
        checkpoint = self._checkpoint(contents)
        self._latest = checkpoint.number
        return checkpoint

    def take_high_watermarks(self, logs: Mapping[TopicPartition, _Offsets]) -> Checkpoint | None:
        """Only the high watermarks, which move all the time; None if there are none, or none has moved."""
        if not self._knows_high_watermarks:
            return None
        for key in self.high_watermarks.keys() & logs.keys():
            self.high_watermarks[key] = logs[key].high_watermark
        self._checkpointed |= self.high_watermarks.keys()
        if self._newest.high_watermarks == (self.high_watermarks, self._topic_ids[HIGH_WATERMARKS]):
            return None
        return self._checkpoint({HIGH_WATERMARKS: self.high_watermarks})

    def _checkpoint(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> Checkpoint:
        number = next(self._numbers)
        newest, ids = self._newest, self._topic_ids
        return Checkpoint(self._files, self._path, self._health, newest, number, contents, ids, self._marks)

    def written(self, checkpoint: Checkpoint) -> None:
        """`checkpoint` or a later one is on the disk, where logs that only earlier ones list are gone."""
        self._checkpointed = self._keys() | checkpoint.partitions
        if checkpoint.number == self._latest:
            self._written = checkpoint.recovery_points


def protect_restored(files: Files, path: str, keys: Sequence[TopicPartition], topic_id: str) -> None:
    """Record, in the stopped data directory `path`, that all records of restored logs are committed.

    Why: a follower truncates records above its high watermark without quarantining them. The checkpoints have
    the offsets of the logs that the restored ones replace.
    """
    checkpoints = OffsetCheckpoints(files, path, Health())
    checkpoints.forget(keys)
    for key in keys:
        checkpoints.keep_high_watermark(key, topic_id, _ALL_OF_IT)
    checkpoints.take().write()
