"""Reads ranges one after the other, over connections of their own.

A scan that ends early, or fails, closes its connections. Two scans never share one: a program may read two
frames in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.reading.connection import Cluster, Endpoint
from penstock.reading.fetching import RangeReader
from penstock.reading.offsets import list_offsets
from penstock.reading.place import COLUMN_TYPES, Place
from penstock.reading.planning import OffsetRange

__all__ = ["Scan", "since", "whole_schema"]

_TEXTS: Final = ("key", "value")
#: columns that are not decoded; rows of these alone are counted by their offsets
_OF_PLACE: Final = {"topic", "partition"}


def whole_schema(*, headers: bool, text: bool) -> Any:
    """All columns of a frame."""
    types = COLUMN_TYPES | dict.fromkeys(_TEXTS, pa.string() if text else pa.binary())
    return pa.schema([pa.field(name, kind) for name, kind in types.items() if headers or name != "headers"])


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read of each range, and how."""

    endpoint: Endpoint
    #: the columns to yield, in this order
    columns: Sequence[str]
    committed: bool = True
    fail_on_data_loss: bool = True
    #: whether keys and values are text; bytes that are not UTF-8 are replaced
    text: bool = False

    @property
    def schema(self) -> Any:
        whole = whole_schema(headers=True, text=self.text)
        return pa.schema([whole.field(name) for name in self.columns])

    def batches(self, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
        """The record batches of the ranges, each in the order of its offsets."""
        schema, cluster = self.schema, Cluster(self.endpoint)
        try:
            for wanted in ranges:
                place = Place(wanted)
                for records in self._reader(cluster, wanted).read():
                    yield pa.RecordBatch.from_arrays(self._chosen(records, place), schema=schema)
        finally:
            cluster.close()

    def _reader(self, cluster: Cluster, wanted: OffsetRange) -> RangeReader:
        return RangeReader(
            cluster,
            wanted,
            committed=self.committed,
            fail_on_data_loss=self.fail_on_data_loss,
            columns=frozenset({*self.columns} - _OF_PLACE or {"offset"}),
            to_skip="Pass fail_on_data_loss=False",
        )

    def _chosen(self, records: Any, place: Place) -> list[Any]:
        columns = dict(zip(records.schema.names, records.columns, strict=True))
        columns["topic"], columns["partition"] = place.columns(records.num_rows)
        if self.text:
            columns |= {name: _as_text(columns[name]) for name in _TEXTS if name in self.columns}
        return [columns[name] for name in self.columns]


def since(
    endpoint: Endpoint, ranges: Sequence[OffsetRange], time_ms: int, committed: bool
) -> list[OffsetRange]:
    """The parts of ranges from the first record of this time or later on."""
    cluster = Cluster(endpoint)
    try:
        cluster.refresh({each.topic for each in ranges})
        first = list_offsets(cluster, {each.whose: time_ms for each in ranges}, committed=committed)
    finally:
        cluster.close()
    starts = ((each, first[each.whose]) for each in ranges)
    parts = (
        OffsetRange(each.topic, each.partition, max(each.start, start), each.stop)
        for each, start in starts
        if start >= 0
    )
    return [each for each in parts if each.size > 0]


def _as_text(column: Any) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if each is None else each.decode(errors="replace") for each in column.to_pylist()]
        return pa.array(texts, pa.string())
