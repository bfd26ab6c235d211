"""The checkpoint files of a data directory: the offsets on the disk, and the offsets to write next.

Three files have a line per log: its recovery point, its log start offset, and its high watermark. The event
loop's thread owns the state in memory. A `Checkpoint` is a copy of one moment, which any thread may write.

The log start checkpoint is of version 1: a start in it was on the disk before any segment below it was
removed, so a first segment that begins beyond it has lost its predecessors. A log without a line, and every
log in a checkpoint of version 0 (written by release 0.1.0, which removed segments first), has no such record.

The recovery point checkpoint is of version 2: its lines have the log start, too, if it is such a record. They
are used if the log start checkpoint is missing or damaged. Both are written before segments are removed.

A log start is `unexplained` if neither retention nor DeleteRecords moved it there: the record was lost, and
the log starts at its first segment. Followers do not adopt it.

Invariants: a recovery point on the disk is never above the log's own when the log is cut; of two checkpoints
the later one stays, whichever thread is done first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import Final, Protocol

from penstock.model.ids import TopicPartition
from penstock.ports import Files
from penstock.storage.checkpoint import format_checked, is_checked, parse_checkpoint
from penstock.storage.health import Health

__all__ = [
    "Checkpoint",
    "OffsetCheckpoints",
    "protect_restored",
    "recorded_high_watermark",
    "recorded_offsets",
]

_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
#: ends the line of a log start that was read from a checkpoint of version 0 and never verified since
_UNVERIFIED: Final = "unverified"
#: ends the lines of a log start that nothing explains
_UNEXPLAINED: Final = "unexplained"
_MARKS: Final = (f" {_UNVERIFIED}", f" {_UNEXPLAINED}")
#: a high watermark that is lowered to the log's end when the log is opened
_ALL_OF_IT: Final = 2**63 - 1
_LOG_PATH: Final = re.compile(r"(?P<root>.*)/topics/(?P<topic>[^/]+)/partition-(?P<index>\d+)")


class _Offsets(Protocol):
    """The offsets of a log that the checkpoints have."""

    @property
    def recovery_point(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def explained_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class _Newest:
    """The number of the checkpoint in each file; the lock is held while one is written."""

    __slots__ = ("lock", "numbers")

    def __init__(self) -> None:
        self.lock = Lock()
        self.numbers: dict[str, int] = {}


class Checkpoint:
    """Offsets of one moment, to be written by a worker thread."""

    __slots__ = (
        "_contents",
        "_files",
        "_health",
        "_newest",
        "_path",
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
        marks: Mapping[TopicPartition, str],
    ) -> None:
        """`marks` are the last fields of the lines of log starts that have one."""
        self._files = files
        self._path = path
        self._health = health
        self._newest = newest
        #: later ones have higher ones
        self.number = number
        starts = contents.get(_LOG_STARTS, {})
        self.log_starts = {key: start for key, start in starts.items() if marks.get(key) != _UNVERIFIED}
        self.recovery_points = dict(contents.get(_RECOVERY_POINTS, {}))
        self._contents = {name: _format_offsets(offsets) for name, offsets in contents.items()}
        if starts:
            self._contents[_LOG_STARTS] = _format_starts(starts, marks)
            self._contents[_RECOVERY_POINTS] = _format_points(self.recovery_points, self.log_starts, marks)
        #: that it speaks of
        self.partitions = frozenset[TopicPartition]().union(*contents.values())

    def write(self) -> None:
        with self._newest.lock:
            for name, content in self._contents.items():
                if self._newest.numbers.get(name, -1) < self.number:
                    self._write(name, content)
                    self._newest.numbers[name] = self.number

    def _write(self, name: str, content: bytes) -> None:
        try:
            self._files.write_atomic(f"{self._path}/{name}", content)
        except OSError as e:
            raise self._health.failed(e, f"cannot write {self._path}/{name}") from e


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
        #: the files name the same partitions
        keys: dict[str, TopicPartition] = {}
        #: `_UNVERIFIED` for keys of `log_starts` that say nothing about which segments must exist,
        #: `_UNEXPLAINED` for those that followers must not adopt
        self._marks: dict[TopicPartition, str] = {}
        self.recovery_points, also_recorded = self._read_recovery_points(keys)
        self.log_starts = self._read_log_starts(keys, also_recorded)
        self.high_watermarks = self._read(_HIGH_WATERMARKS, keys)
        self._knows_high_watermarks = bool(self.high_watermarks)
        #: logs that the checkpoints on the disk may list, and the highest recovery points that they may have
        self._checkpointed = self._keys()
        self._written = dict(self.recovery_points)
        self._latest = -1

    def _read(self, name: str, keys: dict[str, TopicPartition]) -> dict[TopicPartition, int]:
        """A checkpoint's offsets; none where the file is missing or damaged: then all has to be looked at."""
        offsets = {}
        try:
            for line in parse_checkpoint(self._files.read(f"{self._path}/{name}")):
                partition, _, offset = line.rpartition(" ")
                offsets[keys.get(partition) or _key(partition, keys)] = int(offset)
        except (FileNotFoundError, ValueError) as e:
            self._not_used(name, e)
        return offsets

    def _read_recovery_points(
        self, keys: dict[str, TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The recovery points, and the log starts in the same file; see `_read`."""
        points, starts = {}, {}
        try:
            for line in parse_checkpoint(self._files.read(f"{self._path}/{_RECOVERY_POINTS}")):
                topic, index, point, *start = line.split(" ")
                key = keys[f"{topic} {index}"] = TopicPartition(topic, int(index))
                points[key] = int(point)
                if start:
                    starts[key] = int(start[0])
                if len(start) > 1:
                    self._marks[key] = start[1]
        except (FileNotFoundError, ValueError) as e:
            self._not_used(_RECOVERY_POINTS, e)
        return points, starts

    def _read_log_starts(
        self, keys: dict[str, TopicPartition], also_recorded: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The log starts; those of an earlier version's checkpoint are `_UNVERIFIED`.

        If the file is missing or damaged, they are `also_recorded`.
        """
        starts, marks = {}, {}
        try:
            data = self._files.read(f"{self._path}/{_LOG_STARTS}")
            verified = is_checked(data)
            for line in parse_checkpoint(data):
                mark = "" if verified else _UNVERIFIED
                if line.endswith(_MARKS):
                    line, _, mark = line.rpartition(" ")
                partition, _, offset = line.rpartition(" ")
                key = keys.get(partition) or _key(partition, keys)
                starts[key] = int(offset)
                if mark:
                    marks[key] = mark
        except (FileNotFoundError, ValueError) as e:
            self._not_used(_LOG_STARTS, e)
            return also_recorded
        self._marks = marks
        return starts

    def _not_used(self, name: str, error: Exception) -> None:
        """Note in `damaged` that a file is; a missing one is as good as an empty one."""
        if isinstance(error, ValueError):
            self.damaged[f"{self._path}/{name}"] = str(error)

    def recorded_start(self, key: TopicPartition) -> int | None:
        """The start below which segments may have been removed; None if none is recorded."""
        return None if self._marks.get(key) == _UNVERIFIED else self.log_starts.get(key)

    def is_explained(self, key: TopicPartition) -> bool | None:
        """Returns true if a recorded start has a reason, or is of a release that recorded none."""
        return self._marks.get(key) != _UNEXPLAINED if key in self.log_starts else None

    def _keys(self) -> set[TopicPartition]:
        return {*self.recovery_points, *self.log_starts, *self.high_watermarks}

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self.recovery_points.pop(key, None)
            self.log_starts.pop(key, None)
            self._marks.pop(key, None)
            self.high_watermarks.pop(key, None)

    def may_be_written(self, keys: Iterable[TopicPartition]) -> bool:
        """Returns true if a checkpoint on the disk may speak of one of `keys`."""
        return not self._checkpointed.isdisjoint(keys)

    def remember(self, key: TopicPartition, log: _Offsets) -> None:
        self.recovery_points[key] = log.recovery_point
        if key in self.high_watermarks:
            self.high_watermarks[key] = log.high_watermark
        self.log_starts[key] = log.log_start_offset
        if log.explained_start < log.log_start_offset:
            self._marks[key] = _UNEXPLAINED
        else:
            self._marks.pop(key, None)

    def keep_high_watermark(self, key: TopicPartition, offset: int) -> None:
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
            _LOG_STARTS: self.log_starts,
            _RECOVERY_POINTS: self.recovery_points,
        }
        if self._knows_high_watermarks:
            contents[_HIGH_WATERMARKS] = self.high_watermarks
        checkpoint = self._checkpoint(contents)
        self._latest = checkpoint.number
        return checkpoint

    def take_high_watermarks(self, logs: Mapping[TopicPartition, _Offsets]) -> Checkpoint | None:
        """Only the high watermarks, which move all the time; None where there are none."""
        if not self._knows_high_watermarks:
            return None
        for key in self.high_watermarks.keys() & logs.keys():
            self.high_watermarks[key] = logs[key].high_watermark
        self._checkpointed |= self.high_watermarks.keys()
        return self._checkpoint({_HIGH_WATERMARKS: self.high_watermarks})

    def _checkpoint(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> Checkpoint:
        number = next(self._numbers)
        return Checkpoint(self._files, self._path, self._health, self._newest, number, contents, self._marks)

    def written(self, checkpoint: Checkpoint) -> None:
        """`checkpoint` or a later one is on the disk, where logs that only earlier ones list are gone."""
        self._checkpointed = self._keys() | checkpoint.partitions
        if checkpoint.number == self._latest:
            self._written = checkpoint.recovery_points


def _format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_checked(f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items())


def _format_starts(starts: Mapping[TopicPartition, int], marks: Mapping[TopicPartition, str]) -> bytes:
    return format_checked(
        f"{key.topic} {key.partition} {offset}{_ending(marks, key)}" for key, offset in starts.items()
    )


def _ending(marks: Mapping[TopicPartition, str], key: TopicPartition) -> str:
    return f" {marks[key]}" if key in marks else ""


def _format_points(
    points: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    marks: Mapping[TopicPartition, str],
) -> bytes:
    """Recovery points, each with the log start if it is recorded."""
    lines = (
        f"{key.topic} {key.partition} {point} {starts[key]}{_ending(marks, key)}"
        if key in starts
        else f"{key.topic} {key.partition} {point}"
        for key, point in points.items()
    )
    return format_checked(lines, version=2)


def _key(partition: str, keys: dict[str, TopicPartition]) -> TopicPartition:
    """The partition that a line names, kept in `keys` for the other files."""
    topic, _, index = partition.rpartition(" ")
    if not topic:
        raise ValueError(f"{partition!r} names no partition")
    key = keys[partition] = TopicPartition(topic, int(index))
    return key


def protect_restored(files: Files, path: str, keys: Sequence[TopicPartition]) -> None:
    """Record, in the stopped data directory `path`, that all records of restored logs are committed.

    Why: a follower truncates records above its high watermark without quarantining them. The checkpoints have
    the offsets of the logs that the restored ones replace.
    """
    checkpoints = OffsetCheckpoints(files, path, Health())
    checkpoints.forget(keys)
    for key in keys:
        checkpoints.keep_high_watermark(key, _ALL_OF_IT)
    checkpoints.take().write()


def recorded_high_watermark(files: Files, log_path: str) -> int:
    """The high watermark that the data directory of the log at `log_path` records; 0 if it records none."""
    return _number(_recorded(files, log_path, _HIGH_WATERMARKS)) or 0


def recorded_offsets(files: Files, log_path: str) -> tuple[int | None, int]:
    """(log start, recovery point) that the data directory of the log at `log_path` records.

    The start is None, and the recovery point 0, where nothing is recorded.
    """
    point = _recorded(files, log_path, _RECOVERY_POINTS)
    start = _recorded(files, log_path, _LOG_STARTS)
    if start is None and point is not None:
        start = point[1:]
    return _number(start), _number(point) or 0


def _number(fields: Sequence[str] | None) -> int | None:
    """The first of the fields of a line; None if there is none, or if it is not verified."""
    if not fields or fields[-1] == _UNVERIFIED:
        return None
    with suppress(ValueError):
        return int(fields[0])
    return None


def _recorded(files: Files, log_path: str, name: str) -> list[str] | None:
    """The fields of one log's line in one checkpoint, none if it has no line.

    None if the file is missing or damaged. Only that log's line is parsed.
    """
    match = _LOG_PATH.fullmatch(log_path)
    if match is None:
        return []
    prefix = f"{match['topic']} {int(match['index'])} "
    try:
        data = files.read(f"{match['root']}/{name}")
        lines = parse_checkpoint(data)
    except (FileNotFoundError, ValueError):
        return None
    if name == _LOG_STARTS and not is_checked(data):
        return []
    return next((line[len(prefix) :].split(" ") for line in lines if line.startswith(prefix)), [])
