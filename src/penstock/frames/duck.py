"""Topics as tables of DuckDB, which passes columns and filters down to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.dataset as ds

from penstock.frames.pruning import prune
from penstock.frames.scanning import Scan, since
from penstock.model.errors import PenstockError
from penstock.reading.planning import OffsetRange

__all__ = ["TopicDataset"]


class TopicDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A topic as DuckDB sees it: a dataset of Arrow, whose scanner reads from brokers.

    Why a subclass: DuckDB passes columns and filters to Arrow's datasets only. Each scan calls `open_ranges`,
    so that a table that no query reads costs nothing.
    """

    def __init__(self, scan: Scan, open_ranges: Callable[[], Sequence[OffsetRange]]) -> None:
        super().__init__(scan.schema.empty_table())
        self._scan = scan
        self._open_ranges = open_ranges
        #: why a scan has failed: DuckDB's own error has a traceback in its text
        self.failure: PenstockError | None = None

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **_: Any) -> Any:
        """A scanner of the rows that pass the filter."""
        whole = self._scan.schema
        scan = self._scan
        if columns is not None:
            # Arrow does not say which columns a filter uses, but its text has their names.
            used = "" if filter is None else str(filter)
            scan = replace(scan, columns=[name for name in whole.names if name in columns or name in used])
        rows = self._rows(scan, filter, whole)
        return ds.Scanner.from_batches(rows, schema=scan.schema, columns=columns, filter=filter)

    def _rows(self, scan: Scan, filter: Any, whole: Any) -> Iterator[Any]:
        try:
            yield from scan.batches(self._left(scan, filter, whole))
        except PenstockError as e:
            self.failure = e
            raise

    def _left(self, scan: Scan, filter: Any, whole: Any) -> Sequence[OffsetRange]:
        """The ranges in which rows may pass the filter."""
        ranges = self._open_ranges()
        if filter is None:
            return ranges
        left = prune(ranges, filter, whole)
        if left.since_ms is None or not left.ranges:
            return left.ranges
        return since(scan.endpoint, left.ranges, left.since_ms, scan.committed)
