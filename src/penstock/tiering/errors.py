"""Errors of copies, and of proofs that an archive has what a log is about to remove.

LocalLogRefused
├── LogDiverged     the archive has records that the log does not have
└── LogIncomplete   offsets are in no segment, although the log is not compacted
ArchiveUnproven
├── ArchiveFallsShort   the records are not in the archive yet
└── ArchiveContradicts  it is not the archive that it was, or not that of this log
"""

from __future__ import annotations

from penstock.model.errors import PenstockError

__all__ = [
    "ArchiveContradicts",
    "ArchiveFallsShort",
    "ArchiveUnproven",
    "LocalLogRefused",
    "LogDiverged",
    "LogIncomplete",
]


class LocalLogRefused(PenstockError):
    """Base: copying goes on once the log has been repaired, or an operator has decided."""


class LogDiverged(LocalLogRefused):
    """The archive has records that the leader's log does not have, for example after an unclean election."""


class LogIncomplete(LocalLogRefused):
    """The log lacks offsets above its start: they are damaged or lost."""


class ArchiveUnproven(PenstockError):
    """Base: local segments stay."""


class ArchiveFallsShort(ArchiveUnproven):
    """The records are not in the archive yet."""


class ArchiveContradicts(ArchiveUnproven):
    """The archive was rolled back, emptied or exchanged, or has another history: an operator has to look."""
