"""The offsets that a data directory records of one log, for a reader that does not open the directory."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from penstock.model.ids import NO_TOPIC_ID, TopicPartition, format_topic_id
from penstock.ports import Files
from penstock.storage.checkpoint import parse_fields
from penstock.storage.checkpoint_lines import (
    HIGH_WATERMARKS,
    LOCAL_STARTS,
    LOG_STARTS,
    RECOVERY_POINTS,
    UNVERIFIED,
    CheckpointLine,
    has_topic_ids,
    is_of_topic,
    parse_lines,
)
from penstock.storage.folders import IDENTITY_FIELDS, PARTITION_METADATA

__all__ = ["recorded_high_watermark", "recorded_offsets"]

_LOG_PATH: Final = re.compile(r"(?P<root>.*)/topics/(?P<topic>[^/]+)/partition-(?P<index>\d+)")


def recorded_high_watermark(files: Files, log_path: str) -> int:
    """The high watermark that the data directory of the log at `log_path` records; 0 if it records none."""
    _, line = _recorded(files, log_path, HIGH_WATERMARKS)
    return 0 if line is None else line.offsets[0]


def recorded_offsets(files: Files, log_path: str) -> tuple[int | None, int]:
    """(start of the segments, recovery point) that the data directory of the log at `log_path` records.

    The start is the local log start, if there is one. It is None, and the recovery point 0, where nothing is
    recorded.
    """
    usable, start = _recorded(files, log_path, LOG_STARTS)
    _, local = _recorded(files, log_path, LOCAL_STARTS)
    _, point = _recorded(files, log_path, RECOVERY_POINTS)
    recovery_point = 0 if point is None else point.offsets[0]
    if usable:
        recorded = start is not None and start.mark != UNVERIFIED
        found = start.offsets[0] if recorded and start is not None else None
    else:
        found = None if point is None or len(point.offsets) < 2 else point.offsets[1]
    local_start = local.offsets[0] if local is not None else 0
    if local is None and point is not None and len(point.offsets) > 2:
        local_start = point.offsets[2]
    return (None if found is None else max(found, local_start)), recovery_point


def _recorded(files: Files, log_path: str, name: str) -> tuple[bool, CheckpointLine | None]:
    """Whether one checkpoint can be used, and the log's line in it, None if it has none."""
    match = _LOG_PATH.fullmatch(log_path)
    if match is None:
        return True, None
    key = TopicPartition(match["topic"], int(match["index"]))
    try:
        data = files.read(f"{match['root']}/{name}")
        if name == LOG_STARTS and not has_topic_ids(data) and _is_stale(files, match["root"]):
            return False, None
        lines = [line for line in parse_lines(data) if line.key == key]
    except (FileNotFoundError, ValueError):
        return False, None
    topic_id = _topic_id(files, log_path)
    return True, next((line for line in lines if is_of_topic(line.topic_id, topic_id)), None)


def _is_stale(files: Files, root: str) -> bool:
    """Returns true if log starts without topic ids are beside recovery points that have them."""
    try:
        return has_topic_ids(files.read(f"{root}/{RECOVERY_POINTS}"))
    except FileNotFoundError:
        return False


def _topic_id(files: Files, log_path: str) -> str:
    """The topic id in the log's folder; that of no topic if the folder has none."""
    with suppress(OSError, ValueError):
        fields = parse_fields(files.read(f"{log_path}/{PARTITION_METADATA}"), IDENTITY_FIELDS)
        return fields.get("topic_id", format_topic_id(NO_TOPIC_ID))
    return format_topic_id(NO_TOPIC_ID)
