"""How far the archive of a partition is, as its leader knows it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Copied"]


class Copied(NamedTuple):
    """The archive of a partition after a turn."""

    #: the archive has the offsets below it; None if it has no segment
    end_offset: int | None
    #: where a copy goes on
    next_offset: int
    #: the end of its first segment, or page: it leaves the manifest when the log start reaches that
    first_end: int | None
    #: bytes of its batches
    log_size: int = 0
