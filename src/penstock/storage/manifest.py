"""The manifest of a clean shutdown: what every log of a data directory was when its broker stopped.

    penstock-shutdown-manifest 1 CRC32C
    {"directory_id": …, "broker_epoch": …, "logs": [[topic, partition, topic id, …], …]}

A broker writes it last of all, and the next start removes it, durably, before it uses the directory. A start
trusts a log without reading it only if the log on the disk is what the manifest says. A folder that was
removed, swapped or rolled back to an older copy while the broker was stopped is found in this way.

All directories of a broker name the epoch of the registration that ended. A directory that was rolled back as
a whole has a manifest that matches its logs, but an older epoch.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId, TopicPartition, format_topic_id
from penstock.records.checksum import crc32c
from penstock.storage.log_state import LogState
from penstock.storage.segment import LOG, file_name

__all__ = ["NO_BROKER_EPOCH", "LoggedState", "Manifest", "ManifestRefused", "log_entry", "mismatch"]

#: no clean shutdown, or one whose registration is unknown
NO_BROKER_EPOCH: Final = -1
_MAGIC: Final = b"penstock-shutdown-manifest"
_VERSION: Final = b"1"


class ManifestRefused(PenstockError):
    """A manifest that says nothing: all logs count as not closed cleanly."""


class LoggedState(NamedTuple):
    """One log at a clean shutdown."""

    topic: str
    partition: int
    #: 22 characters, as Kafka's tools show it
    topic_id: str
    log_start_offset: int
    end_offset: int
    high_watermark: int
    #: the last leader epoch that wrote, and its first offset; -1 if none has
    leader_epoch: int
    leader_epoch_start: int
    #: base offset and size of each segment, rising
    segments: tuple[tuple[int, int], ...]


def log_entry(key: TopicPartition, topic_id: TopicId, log: LogState) -> LoggedState:
    """What the manifest says of a log that is about to be closed, or has just been loaded."""
    epochs = log.leader_epochs
    # A leader that wrote nothing is forgotten when the log is loaded again.
    last = bisect_left(epochs.starts, log.end_offset) - 1
    return LoggedState(
        key.topic,
        key.partition,
        format_topic_id(topic_id),
        log.log_start_offset,
        log.end_offset,
        log.high_watermark,
        epochs.epochs[last] if last >= 0 else -1,
        epochs.starts[last] if last >= 0 else -1,
        tuple((segment.base_offset, segment.size) for segment in log.segments),
    )


def mismatch(expected: LoggedState, found: LoggedState) -> str | None:
    """How a loaded log differs from the manifest; None if it does not.

    The high watermark is not compared: a log does not know it by itself.
    """
    if found._replace(high_watermark=expected.high_watermark) == expected:
        return None
    sizes = dict(found.segments)
    for base, size in expected.segments:
        if base not in sizes:
            return f"segment {file_name(base)}{LOG} is missing"
        if sizes[base] != size:
            return f"segment {file_name(base)}{LOG} has {sizes[base]} bytes instead of {size}"
    if len(sizes) > len(expected.segments):
        added = min(base for base in sizes if base not in dict(expected.segments))
        return f"segment {file_name(added)}{LOG} was added"
    for name, was, now in zip(LoggedState._fields, expected, found, strict=True):
        if was != now and name != "high_watermark":
            return f"its {name.replace('_', ' ')} is {now} instead of {was}"
    raise AssertionError("two entries differ in no field")


class Manifest(NamedTuple):
    """The manifest of one data directory."""

    directory_id: str
    broker_epoch: int
    logs: dict[TopicPartition, LoggedState]

    @classmethod
    def of(cls, directory_id: str, broker_epoch: int, logs: Iterable[LoggedState]) -> Manifest:
        return cls(
            directory_id, broker_epoch, {TopicPartition(log.topic, log.partition): log for log in logs}
        )

    def encode(self) -> bytes:
        content = {
            "directory_id": self.directory_id,
            "broker_epoch": self.broker_epoch,
            "logs": list(self.logs.values()),
        }
        body = json.dumps(content, separators=(",", ":")).encode()
        return b"%s %s %08x\n%s\n" % (_MAGIC, _VERSION, crc32c(body), body)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """ManifestRefused on anything that is not a whole manifest of this version."""
        if not data:
            raise ManifestRefused("it is empty, as Penstock 0.1.0 left it")
        header, _, rest = data.partition(b"\n")
        magic, _, numbers = header.partition(b" ")
        version, _, checksum = numbers.partition(b" ")
        if magic == _MAGIC and version != _VERSION:
            raise ManifestRefused(f"it has the unknown version {version.decode(errors='replace')}")
        body = rest[:-1]
        if magic != _MAGIC or rest[-1:] != b"\n" or checksum != b"%08x" % crc32c(body):
            raise ManifestRefused("it is damaged")
        try:
            content = json.loads(body)
            logs = [_parsed(*fields) for fields in content["logs"]]
            return cls.of(str(content["directory_id"]), int(content["broker_epoch"]), logs)
        except (KeyError, TypeError, ValueError) as e:
            raise ManifestRefused(f"it is not a manifest: {e!r}") from e


def _parsed(
    topic: str,
    partition: int,
    topic_id: str,
    start: int,
    end: int,
    high_watermark: int,
    epoch: int,
    epoch_start: int,
    segments: list[list[int]],
) -> LoggedState:
    pairs = tuple((base, size) for base, size in segments)
    return LoggedState(topic, partition, topic_id, start, end, high_watermark, epoch, epoch_start, pairs)
