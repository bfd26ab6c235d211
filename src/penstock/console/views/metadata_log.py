"""The metadata log as a timeline, and the difference between the states of two moments.

The log is bounded: older entries become part of the first state that can be compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from penstock.console.views.metadata_state import Change, Item, MetadataState
from penstock.model.errors import CorruptMessage, ProtocolError
from penstock.ports import Buffer
from penstock.records.record import Record, iter_batches, iter_records
from penstock.wire.control_records import SnapshotHeaderRecord, decode_control_record
from penstock.wire.metadata_records import decode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["Entry", "MetadataLog", "difference"]

ENTRIES_MAX: Final = 50_000
ROWS_MAX: Final = 2000
_BUCKETS: Final = 60
#: uncompressed; controllers write smaller batches
_BATCH_BYTES_MAX: Final = 16 << 20


class Entry(NamedTuple):
    """A record of the log and its line. `change` is None if the record changes nothing that is shown."""

    offset: int
    epoch: int
    time_ms: int
    record: Struct | None
    change: Change | None

    def shown(self) -> dict[str, Any]:
        assert self.change is not None
        return {
            "offset": str(self.offset),
            "epoch": self.epoch,
            "time": self.time_ms,
            "kind": self.change.kind,
            "name": self.change.name,
            "text": self.change.text,
        }


class MetadataLog:
    """Committed entries from `start` on, and the states around them."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self.entries: list[Entry] = []
        #: the state before the first entry
        self._base = MetadataState()
        self._newest = MetadataState()
        #: the first offset that can be compared: the state before the first entry stands for it
        self.start = 0
        #: the next offset to read, and the leader epoch of the record before it
        self.position = 0
        self.last_epoch = 0
        #: the time of the base state, if the snapshot states it
        self.start_time_ms = -1
        #: records of types that this version does not know
        self.unknown = 0

    def load_snapshot(self, data: Buffer, end_offset: int, epoch: int) -> None:
        """Start at the end of a snapshot, whose records are in `data`."""
        self.entries, self._base, self.unknown = [], MetadataState(), 0
        for _, record in self._decoded(data):
            if isinstance(record, SnapshotHeaderRecord):
                self.start_time_ms = record.last_contained_log_timestamp
            elif record is not None:
                self._base.apply(record)
        self._newest = self._base.copy()
        self.start, self.position, self.last_epoch = end_offset - 1, end_offset, epoch

    def add(self, data: Buffer, high_watermark: int) -> int:
        """Take in record batches of a fetch below the high watermark; returns the number of bytes."""
        view = memoryview(data)
        size = 0
        for at, header in iter_batches(view):
            end = header.base_offset + header.last_offset_delta + 1
            if end > high_watermark:
                break
            size += header.size
            if end <= self.position:
                continue
            for raw, record in self._decoded(view[at : at + header.size]):
                if raw.offset < self.position:
                    continue
                change = None if record is None else self._newest.apply(record)
                self.entries.append(Entry(raw.offset, header.leader_epoch, raw.timestamp, record, change))
            self.position, self.last_epoch = end, header.leader_epoch
        self._forget()
        return size

    def _decoded(self, data: Buffer) -> Iterator[tuple[Record, Struct | None]]:
        """The records of batches; None for a record of an unknown type."""
        view = memoryview(data)
        for at, header in iter_batches(view):
            for raw in iter_records(view[at : at + header.size], _BATCH_BYTES_MAX):
                try:
                    if header.is_control:
                        yield raw, decode_control_record(raw.key, raw.value)
                    else:
                        yield raw, decode_metadata_record(raw.value or b"")
                except (ProtocolError, CorruptMessage):
                    self.unknown += 1
                    yield raw, None

    def _forget(self) -> None:
        excess = len(self.entries) - self._entries_max
        if excess <= 0:
            return
        # A tenth at once, so that not every record moves the list.
        excess += self._entries_max // 10
        for entry in self.entries[:excess]:
            self._base.apply(entry.record)
            self.start, self.start_time_ms = entry.offset, entry.time_ms
        del self.entries[:excess]

    def page(self, text: str, kind: str, before: int | None, limit: int) -> dict[str, Any]:
        """The newest entries at or below `before` whose line has a text and a kind."""
        wanted = text.lower()
        found: list[dict[str, Any]] = []
        upper = len(self.entries) if before is None else self._index(before)
        for entry in reversed(self.entries[:upper]):
            change = entry.change
            if change is None or (kind and change.kind != kind) or wanted not in change.text.lower():
                continue
            found.append(entry.shown())
            if len(found) == limit:
                break
        kinds = Counter(entry.change.kind for entry in self.entries if entry.change is not None)
        return {
            "entries": found,
            "kinds": sorted(kinds),
            "total": sum(kinds.values()),
            "start": str(self.start),
            "start_time": self.start_time_ms,
            "end": str(self.position - 1),
            "unknown": self.unknown,
            "series": self._series(),
        }

    def offset_at(self, time_ms: int) -> int:
        """The offset of the last entry at or before a time; that of the first state if all are later."""
        found = self.start
        for entry in self.entries:
            if entry.time_ms > time_ms:
                break
            found = entry.offset
        return found

    def state_at(self, offset: int) -> MetadataState:
        """The state after the record at an offset, between the first state and the newest."""
        if offset >= self.position - 1:
            return self._newest
        state = self._base.copy()
        for entry in self.entries[: self._index(offset)]:
            state.apply(entry.record)
        return state

    def _index(self, offset: int) -> int:
        return bisect_right(self.entries, offset, key=lambda entry: entry.offset)

    def _series(self) -> list[tuple[float, int]]:
        """Changes per interval over the time of the entries, for a plot."""
        times = [entry.time_ms for entry in self.entries if entry.change is not None]
        if len(times) < 2:
            return []
        first, last = min(times), max(times)
        width = max(1, (last - first) // _BUCKETS + 1)
        counts = Counter((time_ms - first) // width for time_ms in times)
        return [((first + n * width) / 1000, counts.get(n, 0)) for n in range((last - first) // width + 1)]


def difference(before: MetadataState, after: MetadataState, limit: int = ROWS_MAX) -> dict[str, Any]:
    """The entries that differ, with the fields that differ, by kind and name."""
    changed = [
        item
        for item in {**before.items, **after.items}
        if before.items.get(item) is not after.items.get(item)
        and before.items.get(item) != after.items.get(item)
    ]
    changed.sort()
    rows = [_row(item, before.items.get(item), after.items.get(item)) for item in changed[:limit]]
    return {"rows": rows, "total": len(changed)}


def _row(item: Item, before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> dict[str, Any]:
    old, new = before or {}, after or {}
    fields = [
        {"field": field, "before": old.get(field), "after": new.get(field)}
        for field in {**old, **new}
        if old.get(field) != new.get(field)
    ]
    change = "added" if before is None else "removed" if after is None else "changed"
    return {"kind": item[0], "name": item[1], "change": change, "fields": fields}
