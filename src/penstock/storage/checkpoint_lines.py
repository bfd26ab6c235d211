"""The lines of the offset checkpoints of a data directory.

A line of version 3 is `TOPIC PARTITION TOPIC_ID …`, and has the offsets of the topic with that id only: a
topic that was deleted and created again has another id. Earlier versions have no topic id. Their lines count
for every topic of that name.

    log-start-offset-checkpoint         TOPIC PARTITION TOPIC_ID START [MARK]
    local-log-start-offset-checkpoint   TOPIC PARTITION TOPIC_ID LOCAL_START
    recovery-point-offset-checkpoint    TOPIC PARTITION TOPIC_ID POINT [START [LOCAL_START] [MARK]]
    replication-offset-checkpoint       TOPIC PARTITION TOPIC_ID HIGH_WATERMARK

Version 0 is Kafka's, without a checksum. Of version 2 are only recovery points, with the log start behind
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.model.ids import NO_TOPIC_ID, TopicPartition, format_topic_id
from penstock.storage.checkpoint import format_checked, is_checked, parse_checkpoint

__all__ = [
    "HIGH_WATERMARKS",
    "LOCAL_STARTS",
    "LOG_STARTS",
    "RECOVERY_POINTS",
    "UNEXPLAINED",
    "UNVERIFIED",
    "CheckpointLine",
    "format_lines",
    "has_topic_ids",
    "is_of_topic",
    "parse_lines",
]

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
LOCAL_STARTS: Final = "local-log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
#: ends the line of a log start that was read from a checkpoint of version 0 and never verified since
UNVERIFIED: Final = "unverified"
#: ends the lines of a log start that nothing explains
UNEXPLAINED: Final = "unexplained"
_VERSION: Final = 3
_HEAD: Final = b"3\n"
#: the topic id of a topic whose id is not known
_UNKNOWN: Final = "-"
_LOST: Final = format_topic_id(NO_TOPIC_ID)


class CheckpointLine(NamedTuple):
    """One line: a partition, the id of its topic, and numbers and a mark behind them."""

    key: TopicPartition
    #: 22 characters; "-" if it is not known
    topic_id: str
    #: the offset of the file's name; in a line of recovery points also the log start and the local log start,
    #: if it has them
    offsets: tuple[int, ...]
    mark: str = ""


def is_of_topic(recorded: str, topic_id: str) -> bool:
    """Returns true if a line with the topic id `recorded` may be of the topic with `topic_id`.

    An id that is not known contradicts no other.
    """
    return recorded in (topic_id, _UNKNOWN) or topic_id == _LOST


def has_topic_ids(data: bytes) -> bool:
    """Returns true if `data` is a checkpoint whose lines have topic ids."""
    return data.startswith(_HEAD)


def parse_lines(data: bytes) -> Iterator[CheckpointLine]:
    """The lines of a checkpoint of any version; ValueError on anything else.

    Log starts of version 0 are `UNVERIFIED`.
    """
    mark = "" if is_checked(data) else UNVERIFIED
    behind = 3 if has_topic_ids(data) else 2
    for line in parse_checkpoint(data):
        fields = line.split(" ")
        if len(fields) <= behind:
            raise ValueError(f"{line!r} names no partition with an offset")
        numbers = fields[behind:]
        ending = numbers.pop() if numbers[-1] in (UNVERIFIED, UNEXPLAINED) else mark
        key = TopicPartition(fields[0], int(fields[1]))
        yield CheckpointLine(key, fields[2] if behind == 3 else _UNKNOWN, tuple(map(int, numbers)), ending)


def format_lines(lines: Iterable[CheckpointLine]) -> bytes:
    """A checkpoint of version 3."""
    return format_checked(map(_format, lines), _VERSION)


def _format(line: CheckpointLine) -> str:
    key, topic_id, offsets, mark = line
    known = _UNKNOWN if topic_id == _LOST else topic_id
    numbers = " ".join(map(str, offsets))
    return f"{key.topic} {key.partition} {known} {numbers}{f' {mark}' if mark else ''}"
