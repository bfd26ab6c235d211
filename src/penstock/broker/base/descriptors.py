"""The file descriptors of this process: their limit, a reserve, and the files to close in a shortage.

Running out of descriptors (EMFILE, ENFILE) does not mean that a disk has failed. Three rules keep the broker
running:

- A few spare descriptors are kept open. An open that fails for lack of a descriptor closes one of them and is
  retried. So the metadata log, votes, checkpoints, syncs and new segments still work.
- Segment files that can be opened again are closed when descriptors are scarce (`on_shortage`).
- A client's connection is refused if the broker needs the descriptor itself (`has_room`).

The system assigns the lowest free number, so the number of a new descriptor is a lower bound of the number in
use. As long as it is small, no counting is needed.

Owned by: the process. Spare descriptors may be used from any thread. Files are closed only in the thread of
the broker that owns them.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from penstock.broker.base.logs import get_logger

__all__ = ["DESCRIPTORS", "EXHAUSTED", "Descriptors", "raise_limit"]

log = get_logger("descriptors")
T = TypeVar("T")
#: errors of a process or a system without free descriptors
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: spare descriptors: an atomic write takes two at a time, and several worker threads may need one
_SPARE: Final = 8
#: the fraction of the limit that is reserved for files and other brokers, and its bounds
_HEADROOM_SHARE: Final = 8
_HEADROOM_MIN: Final = 16
_HEADROOM_MAX: Final = 256
_UNLIMITED: Final = 1 << 30
#: how often refusals are logged
_REFUSAL_LOG_S: Final = 10.0


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # Some systems refuse an unlimited number: the soft limit stays in force.
            return


class Descriptors:
    """One per process: see `DESCRIPTORS`."""

    def __init__(self) -> None:
        self._spare: list[int] = []
        self._spare_wanted = 0
        #: the callback of each owner that closes its files, and the thread that may call it
        self._shortage: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        #: refused connections since the last log event
        self._refused = 0
        self._refusal_logged_at = float("-inf")
        self.limit = _UNLIMITED
        self.headroom = _HEADROOM_MIN
        #: from this descriptor number on, files that can be opened again are closed
        self.high = _UNLIMITED

    def open_reserve(self) -> None:
        """Read the limit, and open the spare descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = _UNLIMITED if soft == resource.RLIM_INFINITY else soft
        self.headroom = min(max(self.limit // _HEADROOM_SHARE, _HEADROOM_MIN), _HEADROOM_MAX)
        self.high = self.limit - self.headroom // 2
        self._spare_wanted = _SPARE
        self.restore()

    def close_reserve(self) -> None:
        self._spare_wanted = 0
        self.limit = self.high = _UNLIMITED
        while self._lend():
            continue

    def restore(self) -> bool:
        """Open spare descriptors again that were used; false if some are still missing."""
        while len(self._spare) < self._spare_wanted:
            try:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
        return True

    def _lend(self) -> bool:
        """Close a spare descriptor; false if none is left."""
        try:
            os.close(self._spare.pop())
        except IndexError:
            return False
        return True

    def briefly(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that opens and closes files; it may use spare descriptors.

        Without spare descriptors, files that can be opened again are closed, if this thread may close them.
        """
        is_relieved = False
        while True:
            try:
                result = function(*args)
                break
            except OSError as e:
                if e.errno not in EXHAUSTED:
                    raise
                if not self._lend():
                    if is_relieved or not self.relieve():
                        raise
                    is_relieved = True
        if len(self._spare) < self._spare_wanted:
            self.restore()
        return result

    def open(self, function: Callable[..., T], *args: object, vital: bool) -> T:
        """Call a function that opens a file and keeps it open; a `vital` file may use a spare descriptor."""
        try:
            return function(*args)
        except OSError as e:
            if e.errno not in EXHAUSTED:
                raise
            if not self.relieve() and not (vital and self._lend()):
                raise
        try:
            return function(*args)
        except OSError as e:
            if e.errno not in EXHAUSTED or not vital or not self._lend():
                raise
        return function(*args)

    # -- files that can be closed

    def on_shortage(self, owner: Hashable, close: Callable[[], None]) -> None:
        """Register `close`, which closes files of `owner`, to be called in this thread in a shortage."""
        self._shortage[owner] = (threading.get_ident(), close)

    def forget(self, owner: Hashable) -> None:
        self._shortage.pop(owner, None)

    def relieve(self) -> bool:
        """Close files that can be opened again; false if this thread has registered no callback."""
        thread = threading.get_ident()
        closers = [close for owner, close in self._shortage.values() if owner == thread]
        for close in closers:
            close()
        return bool(closers)

    # -- clients

    def has_room(self, number: int) -> bool:
        """Whether a client may keep the descriptor `number` of its new connection.

        Refusals are logged at intervals only: a refused client connects again soon.
        """
        if number < self.limit - self.headroom:
            return True
        self.relieve()
        if self.in_use() <= self.limit - self.headroom:
            return True
        self._refused += 1
        now = time.monotonic()
        if now - self._refusal_logged_at >= _REFUSAL_LOG_S:
            log.warning("descriptors_exhausted", limit=self.limit, refused=self._refused)
            self._refusal_logged_at = now
            self._refused = 0
        return False

    def in_use(self) -> int:
        return len(os.listdir("/dev/fd"))


#: the descriptors of this process
DESCRIPTORS: Final = Descriptors()
