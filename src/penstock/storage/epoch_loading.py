"""The leader epochs of a log that is opened: from their checkpoint, the manifest, or the batches.

After a clean shutdown the manifest has them, too. They are used if the checkpoint is missing, damaged, or
not the one of the shutdown: a file that was rolled back to an older copy has a correct checksum. Without a
manifest, the batches have the epochs. A log that does not know its epochs, or has wrong ones, could not find
where it diverges from another log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from penstock.ports import Files
from penstock.records.header_fields import BASE_OFFSET, LEADER_EPOCH
from penstock.storage.epochs import EPOCHS_FILE, LeaderEpochs
from penstock.storage.recovery_report import RecoveryReport
from penstock.storage.scan import CorruptLog
from penstock.storage.segments import Segments

__all__ = ["load_epochs"]


def load_epochs(
    files: Files,
    path: str,
    names: Collection[str],
    segments: Segments,
    known: Sequence[int] | None,
    report: RecoveryReport,
) -> LeaderEpochs:
    """The leader epochs of the log in `path`, whose files have `names`.

    `known` are those of the last clean shutdown if the log has the same segments as then, else None.
    """
    if EPOCHS_FILE in names:
        try:
            return LeaderEpochs.decode(files.read(f"{path}/{EPOCHS_FILE}"))
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


def _read_batches(segments: Segments, epochs: LeaderEpochs) -> None:
    for segment in segments:
        with suppress(CorruptLog):
            for _, header in segment.scan(0) if segment.size else ():
                if header[LEADER_EPOCH] > epochs.latest:
                    epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
        segment.release()
