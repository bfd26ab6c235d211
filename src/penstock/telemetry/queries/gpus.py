"""The known GPUs, each with its newest attributes."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.queries.reader import Measure, TableReader, time_column
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, ROLLUPS, SAMPLES, Span

__all__ = ["ABOUT", "ALL", "Attributes", "Gpu", "Only", "find_gpus", "is_of_gpu", "latest"]

#: columns of every table with attributes of a GPU
ABOUT: Final = ("gpu_id", "hostname", "device", "pci_bus_id", "model", "workload", "job", "pod", "namespace")


@dataclass(frozen=True, slots=True)
class Only:
    """Which rows a question is about; None is any."""

    hostname: str | None = None
    workload: str | None = None
    pod: str | None = None

    def has(self, row: Any) -> bool:
        """Whether an object with these attributes is meant."""
        return all(getattr(row, name) == value for name, value in self._named().items())

    def where(self) -> pc.Expression:
        """The same for rows of a table."""
        return reduce(
            operator.and_, (pc.field(name) == value for name, value in self._named().items()), pc.scalar(True)
        )

    def _named(self) -> dict[str, str]:
        given = {"hostname": self.hostname, "workload": self.workload, "pod": self.pod}
        return {name: value for name, value in given.items() if value is not None}


ALL: Final = Only()


@dataclass(frozen=True, slots=True)
class Attributes:
    """A GPU with its host and workload, by its newest samples: the columns `ABOUT`."""

    gpu_id: str
    hostname: str | None
    #: its place in the host: such as nvidia3, and the PCI address
    device: str | None
    pci_bus_id: str | None
    model: str | None
    workload: str | None
    job: str | None
    pod: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Gpu(Attributes):
    """A known GPU."""

    #: of windows that have closed, the end; so it is exact for as long as a sample's window is open
    last_seen: datetime


def latest(reader: TableReader, width_ms: int = DAY_MS) -> Span:
    """The last so many milliseconds up to the newest sample; empty if there is none.

    It starts with a whole hour where the first sample does: the windows that hold it start before it.
    """
    extent = reader.extent()
    if extent is None:
        return Span(0, 0)
    return Span(max(extent.start // HOUR_MS * HOUR_MS, extent.end - width_ms), extent.end)


def is_of_gpu() -> pc.Expression:
    """Our own fields, below zero, are about exporters: they have a target in the place of a GPU."""
    return pc.field("field") >= 0


def find_gpus(reader: TableReader, span: Span, only: Only = ALL) -> list[Gpu]:
    """The GPUs with samples in a time range, by id; `only` filters by their newest state."""
    keys = {name: pc.field(name) for name in ABOUT}
    found = []
    for piece in reader.cover(span, (*ROLLUPS, SAMPLES)):
        table = piece.level.table
        seen = Measure("seen", "max", pc.field(time_column(table)).cast(pa.int64()))
        heard = reader.aggregate(piece, keys, [seen], is_of_gpu())
        # A window was open until just before the next one.
        width_us = 0 if piece.level is SAMPLES else piece.level.width_ms * 1000
        column = pc.add(heard["seen"], width_us).cast(pa.timestamp("us", "UTC"))
        found.append(heard.set_column(heard.column_names.index("seen"), "seen", column))
    if not found:
        return []
    rows = pa.concat_tables(found).sort_by([("gpu_id", "ascending"), ("seen", "ascending")]).to_pylist()
    newest = {row["gpu_id"]: row for row in rows}
    found_gpus = [
        Gpu(**{name: row[name] for name in ABOUT}, last_seen=row["seen"]) for row in newest.values()
    ]
    return [gpu for gpu in found_gpus if only.has(gpu)]
