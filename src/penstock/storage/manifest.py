"""The manifest of a clean shutdown: the state of every log of a data directory when its broker stopped.

    penstock-shutdown-manifest 1 CRC32C
    {"directory_id": …, "broker_epoch": …, "incarnation": …, "logs": [[topic, partition, topic id, …], …]}

A broker writes it last of all, and the next start removes it, durably, before it uses the directory. A start
trusts a log without reading it only if the log on the disk agrees with the manifest. A folder that was
removed, swapped or rolled back to an older copy while the broker was stopped is found in this way.

All directories of a broker name the registration that ended. A directory that was rolled back as a whole has
a manifest that matches its logs, but an older registration.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import TopicPartition
from penstock.ports import Files
from penstock.records.checksum import crc32c
from penstock.storage.loading import ClosedLog
from penstock.storage.log import Log
from penstock.storage.sealing import listed_seals
from penstock.storage.segment import NO_TAIL
from penstock.storage.segment_files import LOG, base_offset_of, file_name

__all__ = [
    "CLEAN_SHUTDOWN",
    "NOT_LISTED",
    "NO_REGISTRATION",
    "OTHER_EPOCHS",
    "LastShutdown",
    "LoggedState",
    "Manifest",
    "ManifestRefused",
    "Registration",
    "closing_entry",
    "encode_manifest",
    "forget_shutdown",
    "log_entry",
    "mismatch",
]

#: the file of a manifest, in its data directory
CLEAN_SHUTDOWN: Final = "clean-shutdown"
#: why a log is unclean that was there without having been closed
NOT_LISTED: Final = "the manifest of the last clean shutdown does not list it"
#: why a log is unclean whose segments are those of the last clean shutdown
OTHER_EPOCHS: Final = "its leader epochs are not those of the last clean shutdown"
_MAGIC: Final = b"penstock-shutdown-manifest"
_VERSION: Final = b"1"


class Registration(NamedTuple):
    """The registration of a broker: its epoch, and the incarnation that makes it unique.

    The epoch alone is the offset of a metadata record. Voters that were rolled back give the same offset to
    another registration.
    """

    epoch: int = -1
    #: zero in manifests of releases that did not write it
    incarnation: bytes = bytes(16)


#: no clean shutdown, or one whose registration is unknown
NO_REGISTRATION: Final = Registration()


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
    #: base offset and size of each segment in turn, rising
    segments: list[int]
    #: known damage, five numbers each: base offset of the segment, position, size, first and next offset
    damage: Sequence[int] = ()
    #: where a batch near the end of the last segment starts; -1 if that is not known
    tail: int = NO_TAIL
    #: 1 if no producer had written with an id
    no_producers: int = 0
    #: base offset of each segment with aborted transactions, and their number, in turn; None if not known
    aborted: Sequence[int] | None = None
    #: each leader epoch and its first offset in turn, rising; None if not known
    epochs: Sequence[int] | None = None
    #: 1 if nothing explains the log start
    unexplained: int = 0
    #: base offset of each segment with a seal, checksum of the seal and of the first batch header, in turn
    seals: Sequence[int] = ()
    #: the start of the local segments; -1 for the log start
    local_start: int = -1

    @property
    def closed(self) -> ClosedLog:
        """The part that `load` uses."""
        return ClosedLog(self.segments, self.tail, self.no_producers == 1, self.epochs, self.seals)


def log_entry(key: TopicPartition, topic_id: str, log: Log) -> LoggedState:
    """The manifest entry of a log that has just been loaded, without the fields of `closing_entry`."""
    end, epochs = log.end_offset, log.leader_epochs
    # A leader that wrote nothing is forgotten when the log is loaded again.
    last = bisect_left(epochs.starts, end) - 1
    epoch, start = (epochs.epochs[last], epochs.starts[last]) if last >= 0 else (-1, -1)
    segments: list[int] = []
    for segment in log.segments:
        segments += segment.base_offset, segment.size
    known = log.recovery.corruption
    damage = [n for each in known for n in (base_offset_of(each.path), *each[1:])] if known else ()
    return LoggedState(
        key.topic,
        key.partition,
        topic_id,
        log.log_start_offset,
        end,
        log.high_watermark,
        epoch,
        start,
        segments,
        damage,
        log.segments.active.tail(),
        int(log.producers.is_empty),
    )


def closing_entry(key: TopicPartition, topic_id: str, log: Log) -> LoggedState:
    """The manifest entry of a log that is about to be closed."""
    start = min(log.segments.first.base_offset, log.log_start_offset)
    return log_entry(key, topic_id, log)._replace(
        aborted=_aborted_counts(log),
        epochs=log.leader_epochs.within(start, log.end_offset),
        unexplained=int(log.explained_start < log.log_start_offset),
        seals=listed_seals(log.segments),
        local_start=log.local_log_start_offset,
    )


def _aborted_counts(log: Log) -> list[int] | None:
    """The field `aborted`; None if an index cannot be read."""
    try:
        found = [(s.base_offset, len(s.transactions.entries())) for s in log.segments.aborting_since(0)]
    except OSError:
        return None
    return [number for each in found for number in each]


def mismatch(expected: LoggedState, found: LoggedState) -> str | None:
    """How a loaded log differs from the manifest; None if it does not.

    The last fields and the high watermark are not compared: a log does not know them by itself.
    """
    if found[:5] == expected[:5] and found[6:9] == expected[6:9]:
        return None
    sizes, known = _sizes(found), _sizes(expected)
    for base, size in known.items():
        if base not in sizes:
            return f"segment {file_name(base)}{LOG} is missing"
        if sizes[base] != size:
            return f"segment {file_name(base)}{LOG} has {sizes[base]} bytes instead of {size}"
    for base in sizes:
        if base not in known:
            return f"segment {file_name(base)}{LOG} was added"
    for name, was, now in zip(LoggedState._fields, expected, found, strict=True):
        if was != now and name in _COMPARED:
            return f"its {name.replace('_', ' ')} is {now} instead of {was}"
    raise AssertionError("two entries differ in no field")


_COMPARED: Final = (*LoggedState._fields[:5], *LoggedState._fields[6:9])


def _sizes(state: LoggedState) -> dict[int, int]:
    """The size of each segment by its base offset."""
    return dict(zip(state.segments[::2], state.segments[1::2], strict=True))


class Manifest(NamedTuple):
    """The manifest of one data directory."""

    directory_id: str
    registration: Registration
    logs: dict[TopicPartition, LoggedState]

    @classmethod
    def of(cls, directory_id: str, registration: Registration, logs: Iterable[LoggedState]) -> Manifest:
        return cls(
            directory_id, registration, {TopicPartition(log.topic, log.partition): log for log in logs}
        )

    def encode(self) -> bytes:
        return encode_manifest(self.directory_id, self.registration, self.logs.values())

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
            # Earlier releases wrote fewer fields.
            logs = [LoggedState(*fields) for fields in content["logs"]]
            incarnation = bytes.fromhex(content.get("incarnation", "")) or NO_REGISTRATION.incarnation
            registration = Registration(int(content["broker_epoch"]), incarnation)
            return cls.of(str(content["directory_id"]), registration, logs)
        except (KeyError, TypeError, ValueError) as e:
            raise ManifestRefused(f"it is not a manifest: {e!r}") from e


def encode_manifest(directory_id: str, registration: Registration, logs: Iterable[LoggedState]) -> bytes:
    content = {
        "directory_id": directory_id,
        "broker_epoch": registration.epoch,
        "incarnation": registration.incarnation.hex(),
        "logs": list(logs),
    }
    body = json.dumps(content, separators=(",", ":")).encode()
    return b"%s %s %08x\n%s\n" % (_MAGIC, _VERSION, crc32c(body), body)


def forget_shutdown(files: Files, path: str, keys: Iterable[TopicPartition]) -> None:
    """Remove logs that a command replaces from the manifest of a directory that no broker uses.

    The next start reads these logs. A manifest that is missing or refused stays as it is.
    """
    place = f"{path}/{CLEAN_SHUTDOWN}"
    with suppress(FileNotFoundError, ManifestRefused):
        manifest = Manifest.decode(files.read(place))
        for key in keys:
            manifest.logs.pop(key, None)
        files.write_atomic(place, manifest.encode())


class LastShutdown:
    """The manifest of a data directory, for the logs that have not been loaded since."""

    __slots__ = ("_expected", "arrived", "clean", "problem", "registration", "unclean")

    def __init__(self, content: bytes | None, directory_id: str) -> None:
        """`content` is the manifest's file, None where there was none."""
        #: true if the last broker that used the directory shut down in order
        self.clean = False
        #: that of this broker
        self.registration = NO_REGISTRATION
        #: why the manifest is not used, None if it is or if there was none
        self.problem: str | None = None
        #: logs that differ from the manifest, with the reason
        self.unclean: dict[TopicPartition, str] = {}
        #: logs that the manifest need not list: a start has finished their move to the directory
        self.arrived: set[TopicPartition] = set()
        self._expected: dict[TopicPartition, LoggedState] = {}
        if content is None:
            return
        try:
            manifest = Manifest.decode(content)
            if manifest.directory_id != directory_id:
                raise ManifestRefused(f"it belongs to the data directory {manifest.directory_id}")
        except ManifestRefused as e:
            self.problem = str(e)
        else:
            self.clean = True
            self.registration = manifest.registration
            self._expected = manifest.logs

    def expected(self, key: TopicPartition) -> LoggedState | None:
        """The entry of a log, once: the manifest does not have its later changes."""
        return self._expected.pop(key, None)

    def has_other_segments(self, key: TopicPartition, segments: list[int]) -> bool:
        """Returns true if the manifest lists a log, with other segments or sizes than `segments`."""
        expected = self._expected.get(key)
        return expected is not None and expected.segments != segments

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Logs of these names are new ones from now on."""
        for key in keys:
            self._expected.pop(key, None)

    def distrust(self, key: TopicPartition, reason: str) -> None:
        """Have a log recovered when it is loaded, even if it agrees with the manifest."""
        self._expected.pop(key, None)
        self.unclean[key] = reason
