"""Rows of a table, and dead letters, from messages: without I/O but for the schemas of a registry.

A message becomes a row, a deletion (a tombstone in an upsert table), or a dead letter with a reason. Columns
that values bring are reported, and nothing else is done then: the driver decides on the columns of the whole
batch, and the messages are judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.jobs.delta import INSTANT
from penstock.tables.keys import KeyReader, ReadKeys
from penstock.tables.layout import DEAD_LETTERS, RESERVED
from penstock.values.decoding import Decoder, Undecodable
from penstock.values.fitting import fit
from penstock.values.inference import new_fields
from penstock.values.types import added, clash, same_items

__all__ = ["Judge", "Judged"]

_VALUE: Final = "value"
_NOTHING: Final = pa.struct([])
#: the first and the last microsecond of the years 1 to 9999: Delta's readers know no others
_TIMES: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)


class Judged(NamedTuple):
    """The outcome of a block of messages."""

    #: rows in the order of the messages: place, key, and the columns of values
    rows: Any
    #: of each row, whether it deletes its key; None in an append table
    deletes: list[bool]
    dead_letters: Any
    #: the time of the latest message that is no dead letter; 0 without one
    newest_ms: int
    #: the fields that values have in addition; if there are any, the rest is not to be used
    found: Any


@dataclass(frozen=True)
class Judge:
    """Judges messages by the columns that the table has; sent to executors."""

    #: of the place and the key
    place: list[Any]
    #: the columns of values, as a structure
    fields: Any
    values: Decoder
    keys: KeyReader
    #: whether values bring columns; otherwise, fields that are no columns are left out
    evolves: bool = True
    upserts: bool = False

    def judge(self, messages: Any, read: ReadKeys | None = None) -> Judged:
        """The outcome of a block: key, value, topic, partition, offset, timestamp.

        `read` are its keys, if they have been read before.
        """
        size = len(messages)
        reasons: list[str | None] = [None] * size
        rows = self._values(messages["value"].to_pylist(), reasons)
        is_null = messages["value"].is_null().to_pylist()
        for number in _timeless(messages["timestamp"]):
            # A tombstone needs no time: it leaves no row.
            if not (self.upserts and is_null[number]):
                reasons[number] = "the timestamp is not of the years 1 to 9999"
                rows[number] = None
        found = self._found(rows, reasons)
        if len(found):
            return Judged(None, [], None, 0, found)
        fitted = fit([None if row is None else row.value for row in rows], self.fields)
        for number, why in enumerate(fitted.reasons):
            reasons[number] = reasons[number] or why
        keys = self._keys(read or self.keys.read(messages["key"].to_pylist()), reasons)
        return self._judged(messages, fitted.column, keys, reasons)

    def _values(self, values: Sequence[bytes | None], reasons: list[str | None]) -> list[_Row | None]:
        rows: list[_Row | None] = []
        for number, data in enumerate(values):
            if data is None:
                rows.append(None)
                continue
            try:
                value, columns = self.values.decode(data)
                rows.append(_Row(value, columns) if isinstance(value, dict) else _Row({_VALUE: value}, None))
            except Undecodable as error:
                reasons[number] = str(error)
                rows.append(None)
        return rows

    def _found(self, rows: Sequence[_Row | None], reasons: list[str | None]) -> Any:
        """The fields that the table lacks. A row whose fields cannot be columns becomes a dead letter."""
        if not self.evolves:
            return _NOTHING
        by_schema: dict[int, tuple[Any, list[int]]] = {}
        free: list[int] = []
        for number, row in enumerate(rows):
            if row is None:
                continue
            if row.columns is None:
                free.append(number)
            else:
                by_schema.setdefault(id(row.columns), (row.columns, []))[1].append(number)
        grown = self.fields
        lacking = new_fields([rows[number].value for number in free], self.fields)  # type: ignore[union-attr]
        grown = added(grown, lacking, RESERVED)
        for columns, _ in by_schema.values():
            grown = added(grown, columns, RESERVED)
        if grown != self.fields:
            return grown
        if len(lacking):
            for number in free:
                own = new_fields([rows[number].value], self.fields)  # type: ignore[union-attr]
                reasons[number] = _clash(own, self.fields)
        for columns, numbers in by_schema.values():
            why = _clash(columns, self.fields)
            for number in numbers if why is not None else ():
                reasons[number] = why
        return _NOTHING

    def _keys(self, read: ReadKeys, reasons: list[str | None]) -> list[Any]:
        is_text = pa.types.is_string(self.place[-1].type)
        found: list[Any] = []
        for number, (name, why) in enumerate(zip(*read, strict=True)):
            if name is None and why is None and self.upserts:
                why = "the message has no key"
            reasons[number] = reasons[number] or why
            found.append(name.decode() if is_text and name is not None else name)
        return found

    def _judged(self, messages: Any, values: Any, keys: list[Any], reasons: list[str | None]) -> Judged:
        place = [_within_years(messages["timestamp"]), messages["partition"], messages["offset"]]
        place.append(pa.array(keys, self.place[-1].type))
        columns = [*place, *values.flatten()]
        schema = pa.schema([*self.place, *self.fields])
        table = pa.Table.from_arrays(
            [each.cast(field.type) for each, field in zip(columns, schema, strict=True)], schema=schema
        )
        is_good = pa.array([why is None for why in reasons])
        deletes = []
        if self.upserts:
            nulls = messages["value"].is_null().to_pylist()
            deletes = [null for null, why in zip(nulls, reasons, strict=True) if why is None]
        newest_ms = _newest_ms(messages["timestamp"].filter(is_good))
        return Judged(table.filter(is_good), deletes, _dead_letters(messages, reasons), newest_ms, _NOTHING)


class _Row(NamedTuple):
    """A value, and the columns of its schema; None without a schema."""

    value: dict[str, Any]
    columns: Any | None


def _clash(found: Any, known: Any, reserved: frozenset[str] = RESERVED) -> str | None:
    """Why some of the fields that were found are no columns; None if all are."""
    names = {field.name: field for field in known}
    for field in found:
        own = names.get(field.name)
        if own is None:
            inner = same_items(field.type, field.type)[0]
            why = _clash(inner, _NOTHING, frozenset()) if pa.types.is_struct(inner) else None
            return clash(field.name, known, reserved) or why or f"{field.name!r} cannot become a column"
        pair = same_items(own.type, field.type)
        if all(pa.types.is_struct(each) for each in pair):
            why = _clash(pair[1], pair[0], frozenset())
            if why is not None:
                return why
    return None


def _timeless(times: Any) -> list[int]:
    """The numbers of the messages whose times no table can have."""
    low, high = _TIMES
    numbers = times.cast(INSTANT).cast(pa.int64())
    found: list[int] = pc.indices_nonzero(
        pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    ).to_pylist()
    return found


def _newest_ms(times: Any) -> int:
    """The latest of those times that a table can have."""
    numbers = times.cast(INSTANT).cast(pa.int64())
    newest = pc.max(numbers.filter(pc.less_equal(numbers, _TIMES[1]))).as_py()
    return 0 if newest is None else max(0, newest // 1000)


def _within_years(times: Any) -> Any:
    """Times that no table can have become the nearest one."""
    low, high = _TIMES
    numbers = pc.max_element_wise(times.cast(INSTANT).cast(pa.int64()), low, skip_nulls=False)
    return pc.min_element_wise(numbers, high, skip_nulls=False).cast(INSTANT)


def _dead_letters(messages: Any, reasons: list[str | None]) -> Any:
    """The rows of the table of dead letters."""
    reason = pa.array(reasons, pa.string())
    made = {"reason": reason, "timestamp": _within_years(messages["timestamp"])}
    columns = [
        made[name] if name in made else messages[name].cast(kind)
        for name, kind in zip(DEAD_LETTERS.names, DEAD_LETTERS.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=DEAD_LETTERS).filter(reason.is_valid())
