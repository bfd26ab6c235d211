"""The file of the lag ring in the console's data folder: read at the start, written every half minute.

Files are read and written in worker threads. A file is replaced as a whole, after its bytes are on disk, so
that a crash leaves the old or the new one. A file that cannot be read is renamed, not overwritten.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Final

from penstock.console.views.lag_ring import LagRing, RingState, UnreadableRing, decoded, encoded
from penstock.console.views.samples import Sample, total_lag

__all__ = ["LagStore"]

_log: Final = logging.getLogger(__name__)

_NAME: Final = "lags.msgpack"
_PAUSE_S: Final = 30.0
_READ_MAX: Final = (16 << 20) + 1


class LagStore:
    """The lag ring of a console, in a file if it has a folder. Owned by the thread of the event loop."""

    def __init__(self, folder: Path | None) -> None:
        self.ring = LagRing()
        self._path = None if folder is None else folder / _NAME
        self._is_dirty = False
        #: a cancelled `save` leaves its thread behind
        self._writing = threading.Lock()

    def seen(self, sample: Sample, *, is_total: bool) -> None:
        """Add the lags of a sample; with `is_total` also their sum, as all visitors have the same rights."""
        lags = {name: lag.records for name, lag in sample.lags.items() if lag is not None and lag.is_exact}
        total = total_lag(sample) if is_total else None
        known = total.records if total is not None and total.is_exact else None
        cluster_id = sample.metadata.cluster_id or ""
        self._is_dirty |= self.ring.add(cluster_id, sample.time_s, lags, known)

    async def load(self) -> None:
        """Read the file. One that cannot be read is not overwritten: the ring is in memory only then."""
        if self._path is None:
            return
        try:
            state = await asyncio.to_thread(_read, self._path)
        except OSError as error:
            _log.warning("the lag history %s is not read, and not kept: %s", self._path, error)
            self._path = None
            return
        if state is not None:
            self.ring.load(state)

    async def keep(self) -> None:
        """Write the ring whenever it has changed, until this is cancelled."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            await self.save()

    async def save(self) -> None:
        """Write the ring if it has changed. A failure is logged, and tried again with the next change."""
        if self._path is None or not self._is_dirty:
            return
        self._is_dirty = False
        state = self.ring.state()
        try:
            await asyncio.to_thread(_write, self._path, state, self._writing)
        except OSError as error:
            self._is_dirty = True
            _log.warning("the lag history %s is not written: %s", self._path, error)


def _read(path: Path) -> RingState | None:
    """The state in a file; None if there is no file, or it is damaged."""
    try:
        with path.open("rb") as file:
            return decoded(file.read(_READ_MAX))
    except FileNotFoundError:
        return None
    except UnreadableRing as error:
        kept = path.with_name(f"{path.name}.unreadable")
        _log.warning("the lag history %s is damaged, and kept as %s: %s", path, kept.name, error)
        os.replace(path, kept)
        return None


def _write(path: Path, state: RingState, writing: threading.Lock) -> None:
    with writing:
        _replace(path, encoded(state))


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.new")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
