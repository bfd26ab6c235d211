"""Messages in flight: delivered by the source, and not yet acknowledged there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from penstock.bridge.errors import WriteFailed
from penstock.bridge.message import Bridged

__all__ = ["Counts", "Entry", "Window"]

#: ids of written messages that are remembered, so that a redelivery is not written again
_REMEMBERED: Final = 100_000


@dataclass(slots=True)
class Counts:
    """What became of delivered messages, since the start of the process.

    Invariant: received = acknowledged + merged + released + lost + in flight.
    Invariant: acknowledged <= written + skipped.
    """

    received: int = 0
    #: acknowledged by the target
    written: int = 0
    #: acknowledged at the source
    acknowledged: int = 0
    #: delivered again while in flight
    merged: int = 0
    #: acknowledged without a write: written before, or copied here from the target's system
    skipped: int = 0
    #: writes that were begun again, because the target did not answer in time
    retried: int = 0
    #: given back to the source: refused by the target, or unfinished when the bridge was stopped
    released: int = 0
    #: in flight when the connection to the source was lost
    lost: int = 0
    #: written without a de-duplication key
    without_id: int = 0

    def document(self) -> dict[str, int]:
        return asdict(self)


@dataclass(slots=True, eq=False)
class Entry:
    """A message in flight."""

    message: Bridged
    #: the connection that delivered the message is gone
    is_lost: bool = False
    error: WriteFailed | None = None


class Window:
    """The messages in flight, at most `limit`. A message is acknowledged after its write, never before."""

    def __init__(self, limit: int, target: str, remembered: int = _REMEMBERED) -> None:
        self._limit = limit
        self._target = target
        self._remembered = remembered
        self.counts = Counts()
        #: in the order of delivery
        self._entries: dict[Entry, None] = {}
        self._by_id: dict[str, Entry] = {}
        self._written_ids: dict[str, None] = {}
        self._due: list[Entry] = []
        self._failed: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def room(self) -> int:
        return max(0, self._limit - len(self._entries))

    @property
    def is_writing(self) -> bool:
        """Returns true while the target has not reported the result of some write."""
        return len(self._entries) > len(self._due) + len(self._failed)

    def add(self, message: Bridged) -> Entry | None:
        """Take a delivered message. Returns its entry if the message has to be written."""
        self.counts.received += 1
        unique = message.id if message.has_unique_id else None
        if unique is not None and (held := self._by_id.get(unique)) is not None:
            # Only the handle of the last delivery is valid in some systems.
            held.message = message
            self.counts.merged += 1
            return None
        entry = Entry(message)
        self._entries[entry] = None
        if unique is not None:
            self._by_id[unique] = entry
        if message.origin == self._target or (unique is not None and unique in self._written_ids):
            self.counts.skipped += 1
            self._due.append(entry)
            return None
        return entry

    def wrote(self, entry: Entry) -> None:
        """The target has acknowledged the message."""
        self.counts.written += 1
        message = entry.message
        if message.id is None:
            self.counts.without_id += 1
        elif message.has_unique_id:
            self._remember(message.id)
        if not entry.is_lost:
            self._due.append(entry)

    def failed(self, entry: Entry, error: WriteFailed) -> None:
        """The target has not stored the message, or it is not known whether."""
        if not entry.is_lost:
            entry.error = error
            self._failed.append(entry)

    def take_due(self) -> list[Entry]:
        """The entries to acknowledge at the source; `acknowledged` ends them."""
        due, self._due = self._due, []
        return due

    def take_failed(self) -> list[Entry]:
        """The entries whose write failed; `retry` or `released` is next."""
        failed, self._failed = self._failed, []
        return failed

    def retry(self, entries: list[Entry]) -> None:
        """The messages are written again."""
        self.counts.retried += len(entries)
        for entry in entries:
            entry.error = None

    def acknowledged(self, entries: list[Entry]) -> None:
        self.counts.acknowledged += len(entries)
        self._remove(entries)

    def released(self, entries: list[Entry]) -> None:
        self.counts.released += len(entries)
        self._remove(entries)

    def pending(self) -> list[Entry]:
        """All entries, in the order of delivery."""
        return list(self._entries)

    def lose(self) -> None:
        """The connection to the source is gone, and the handles of all messages with it."""
        entries = self.pending()
        for entry in entries:
            entry.is_lost = True
        self.counts.lost += len(entries)
        self._due.clear()
        self._failed.clear()
        self._remove(entries)

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            del self._entries[entry]
            if entry.message.has_unique_id and entry.message.id is not None:
                self._by_id.pop(entry.message.id, None)

    def _remember(self, id_: str) -> None:
        self._written_ids[id_] = None
        if len(self._written_ids) > self._remembered:
            del self._written_ids[next(iter(self._written_ids))]
