"""The leader epochs of a log that is opened: from their checkpoint, the manifest, or the batches.

After a clean shutdown the manifest has them, too. They are used if the checkpoint is missing, damaged, or
not the one of the shutdown: a file that was rolled back to an older copy has a correct checksum. Without a
manifest, the batches have the epochs. The checkpoint has to fit a few of the batches that a recovery does not
read: the first one of each segment, the last one, and the first one of each epoch. A log that does not know
its epochs, or has wrong ones, could not find where it diverges from another log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from penstock.ports import Files
from penstock.records.header_fields import BASE_OFFSET, LEADER_EPOCH
from penstock.storage.config import FOREVER
from penstock.storage.continuity import last_indexed
from penstock.storage.epochs import EPOCHS_FILE, NO_OFFSET, LeaderEpochs
from penstock.storage.recovery_report import RecoveryReport
from penstock.storage.scan import CorruptLog
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segments import Segments

__all__ = ["fit_epochs", "load_epochs"]


def load_epochs(
    files: Files,
    path: str,
    names: Collection[str],
    segments: Segments,
    known: Sequence[int] | None,
    report: RecoveryReport,
    owner: LogOwner = NO_OWNER,
) -> LeaderEpochs:
    """The leader epochs of the log of `owner` in `path`, whose files have `names`.

    `known` are those of the last clean shutdown if the log has the same segments as then, else None.
    """
    if EPOCHS_FILE in names:
        try:
            return LeaderEpochs.decode(files.read(f"{path}/{EPOCHS_FILE}"), owner)
        except ValueError as e:
            report.damaged_files[f"{path}/{EPOCHS_FILE}"] = str(e)
    epochs = LeaderEpochs()
    if known:
        epochs.restore(known)
    if not segments.size:
        # A new segment has an open file. With thousands of empty partitions the descriptors would run out.
        segments.active.close_file()
    elif known is None:
        _read_batches(segments, epochs)
    return epochs


def fit_epochs(epochs: LeaderEpochs, unread: Sequence[Segment], report: RecoveryReport) -> None:
    """Replace leader epochs that do not fit the batches of the segments that a recovery does not read."""
    if not unread or all(_fits(epochs, header) for header in _samples(epochs, unread)):
        return
    found = LeaderEpochs()
    _read_batches(unread, found)
    epochs.replace(found)
    report.other_epochs = True


def _fits(epochs: LeaderEpochs, header: tuple[int, ...]) -> bool:
    return header[LEADER_EPOCH] == epochs.epoch_of(header[BASE_OFFSET])


def _samples(epochs: LeaderEpochs, segments: Sequence[Segment]) -> Iterator[tuple[int, ...]]:
    """The headers of the first batch of each segment, of the last one, and of the first one of each epoch."""
    ends = [*(segment.base_offset for segment in segments[1:]), FOREVER]
    for segment, end in zip(segments, ends, strict=True):
        # The scrubber finds damage.
        with suppress(CorruptLog):
            for _, header in islice(segment.scan(0), 1):
                yield header
            if segment is segments[-1]:
                for _, header in deque(segment.scan(last_indexed(segment)), maxlen=1):
                    yield header
            for start in [each for each in epochs.starts if segment.base_offset < each < end]:
                for _, header in islice(segment.scan(segment.find(start)), 1):
                    yield header
        segment.release()


def _read_batches(segments: Iterable[Segment], epochs: LeaderEpochs) -> None:
    previous = NO_OFFSET
    for segment in segments:
        with suppress(CorruptLog):
            for _, header in segment.scan(0) if segment.size else ():
                if header[LEADER_EPOCH] != epochs.latest:
                    epochs.follow(header[LEADER_EPOCH], header[BASE_OFFSET], previous)
                previous = header[BASE_OFFSET]
        segment.release()
