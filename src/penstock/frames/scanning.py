"""Reads ranges one after the other, over connections of their own.

A scan that ends early, or fails, closes its connections. Two scans never share one: a program may read two
frames in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.reading.connection import Cluster, Endpoint
from penstock.reading.fetching import RangeReader
from penstock.reading.offsets import list_offsets
from penstock.reading.place import COLUMN_TYPES, Place
from penstock.reading.planning import OffsetRange
from penstock.registry.settings import RegistrySettings
from penstock.values.typed import RegistryValues, latest_columns

__all__ = ["Scan", "Structure", "since", "whole_schema"]

_TEXTS: Final = ("key", "value")
_VALUE, _MALFORMED = "value", "malformed"
#: columns that are not decoded; rows of these alone are counted by their offsets
_OF_PLACE: Final = {"topic", "partition"}


def whole_schema(*, headers: bool, text: bool, structure: Any = None) -> Any:
    """All columns of a frame. Values of a `structure` have a column for the bytes of malformed ones."""
    types = COLUMN_TYPES | dict.fromkeys(_TEXTS, pa.string() if text else pa.binary())
    if structure is not None:
        types |= {_VALUE: structure, _MALFORMED: pa.binary()}
    return pa.schema([pa.field(name, kind) for name, kind in types.items() if headers or name != "headers"])


class Structure(NamedTuple):
    """The columns of values by the schemas of a registry."""

    kind: Any
    settings: RegistrySettings

    @classmethod
    def of(cls, topic: str, settings: RegistrySettings, subject: str | None = None) -> Structure:
        """Those of the latest schema of a subject, by default that of the topic. Asks the registry."""
        return cls(latest_columns(settings, subject or f"{topic}-value"), settings)


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
    #: of values with the schemas of a registry
    structure: Structure | None = None

    @property
    def schema(self) -> Any:
        return pa.schema([self.whole.field(name) for name in self.columns])

    @property
    def whole(self) -> Any:
        """All columns that there are."""
        structure = None if self.structure is None else self.structure.kind
        return whole_schema(headers=True, text=self.text, structure=structure)

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
            columns=self._decoded(),
            to_skip="Pass fail_on_data_loss=False",
        )

    def _decoded(self) -> frozenset[str]:
        """What has to be decoded of records for these columns; at least one column, which counts the rows."""
        wanted = {_VALUE if name == _MALFORMED else name for name in self.columns} - _OF_PLACE
        return frozenset(wanted or {"offset"})

    def _chosen(self, records: Any, place: Place) -> list[Any]:
        columns = dict(zip(records.schema.names, records.columns, strict=True))
        columns["topic"], columns["partition"] = place.columns(records.num_rows)
        typed = () if self.structure is None else (_VALUE,)
        if self.structure is not None and _VALUE in columns:
            values = RegistryValues(*self.structure)
            columns[_VALUE], columns[_MALFORMED] = values.decode(columns[_VALUE])
        if self.text:
            texts = [name for name in _TEXTS if name in self.columns and name not in typed]
            columns |= {name: _as_text(columns[name]) for name in texts}
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
