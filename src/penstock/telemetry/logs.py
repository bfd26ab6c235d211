"""Recorded telemetry: snapshots of DCGM and logs of nvidia-smi, both CSV, recognised by their first line.

    DCGM        timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,
                labels_raw: one sample per line; the last column has labels in Prometheus' notation
    nvidia-smi  timestamp, index, uuid, name, utilization.gpu [%], …   (--query-gpu=… --format=csv)
                one GPU per line, one field per column; times without a zone, taken for UTC

Every value of a file ends up in one count of `Counts`: nothing disappears.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.model.errors import PenstockError
from penstock.telemetry.fields import Field, field, smi_field
from penstock.telemetry.labels import MalformedLabels, origin, parse_labels
from penstock.telemetry.message import MalformedSample, Sample, parse_timestamp

__all__ = ["Counts", "UnknownLayout", "read_log"]

_DCGM_NEEDS: Final = frozenset({"timestamp", "metric_name", "uuid", "value"})
#: other names of these columns
_DCGM_SPELLINGS: Final = {
    "metric": "metric_name",
    "gpu": "gpu_id",
    "UUID": "uuid",
    "model": "modelName",
    "host": "Hostname",
    "hostname": "Hostname",
    "raw_labels": "labels_raw",
    "raw labels": "labels_raw",
    "labels": "labels_raw",
}
_SMI_NEEDS: Final = frozenset({"timestamp", "uuid"})
#: columns of nvidia-smi that identify a GPU
_SMI_LABELS: Final = {"name": "model_name", "driver_version": "driver_version", "pci.bus_id": "pci_bus_id"}
_SMI_TIME: Final = "%Y/%m/%d %H:%M:%S.%f"
_WORDS: Final = {"no": 0.0, "yes": 1.0, "not active": 0.0, "active": 1.0, "disabled": 0.0, "enabled": 1.0}


class UnknownLayout(PenstockError):
    """A file that is in neither layout."""


@dataclass(slots=True)
class Counts:
    """Counts of a file's values."""

    samples: int = 0
    #: there is no value: [N/A], [Not Supported], empty, not a number
    blank: int = 0
    #: columns and metrics that are no fields we know
    foreign: int = 0
    #: lines that make no sense
    malformed: int = 0


def read_log(lines: Iterable[str], counts: Counts, hostname: str = "") -> Iterator[Sample]:
    """The samples of a file, in its order. `hostname` is for logs that do not name their host."""
    rows = csv.reader(lines, skipinitialspace=True)
    try:
        header = [column.strip() for column in next(rows, [])]
        header = [_DCGM_SPELLINGS.get(column, column) for column in header]
        names = [column.split(" [")[0] for column in header]
        if set(header) >= _DCGM_NEEDS:
            yield from _dcgm(rows, header, counts, hostname)
        elif set(names) >= _SMI_NEEDS:
            yield from _smi(rows, names, counts, hostname)
        else:
            raise UnknownLayout(
                "neither a DCGM snapshot (timestamp,metric_name,…,uuid,…,value) nor a log of nvidia-smi "
                "(--query-gpu=timestamp,uuid,… --format=csv)"
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise UnknownLayout(f"not a CSV file: {error}") from error


def _dcgm(rows: Iterator[list[str]], header: list[str], counts: Counts, hostname: str) -> Iterator[Sample]:
    for row in rows:
        if not row:
            continue
        cells = dict(zip(header, row, strict=False))
        known = field(cells.get("metric_name", ""))
        if known is None and len(row) == len(header):
            counts.foreign += 1
            continue
        try:
            if known is None or len(row) != len(header):
                raise MalformedSample(f"{len(row)} columns of {len(header)}")
            at = parse_timestamp(cells["timestamp"])
            labels = parse_labels(cells.get("labels_raw", ""))
            value = float(cells["value"]) if cells["value"].strip() else math.nan
        except (MalformedSample, MalformedLabels, ValueError):
            counts.malformed += 1
            continue
        # A label with a column of its own has precedence over the exporter's label.
        columns = {name: cells.get(name, "") for name in header if name not in _NOT_LABELS}
        place = origin({**labels, **{name: text for name, text in columns.items() if text}}, hostname)
        if not place.uuid:
            counts.malformed += 1
        elif not math.isfinite(value):
            counts.blank += 1
        else:
            counts.samples += 1
            yield Sample(at, known, place.uuid, place.device, place.hostname, value, place.labels)


#: columns of DCGM's that are no labels; `gpu_id` is the GPU's index on its host, which `device` says, too
_NOT_LABELS: Final = frozenset({"timestamp", "metric_name", "gpu_id", "value", "labels_raw"})


def _smi(rows: Iterator[list[str]], names: list[str], counts: Counts, hostname: str) -> Iterator[Sample]:
    known: list[Field | None] = [smi_field(name) for name in names]
    identity = {"timestamp", "uuid", "index", *_SMI_LABELS}
    foreign = sum(one is None and name not in identity for name, one in zip(names, known, strict=True))
    for row in rows:
        if not row:
            continue
        cells = dict(zip(names, row, strict=False))
        at = _smi_time(cells["timestamp"]) if len(row) == len(names) and cells["uuid"] else None
        if at is None:
            counts.malformed += 1
            continue
        counts.foreign += foreign
        labels = {label: cells[column] for column, label in _SMI_LABELS.items() if cells.get(column)}
        device = f"nvidia{cells['index']}" if cells.get("index") else ""
        for one, cell in zip(known, row, strict=True):
            if one is None:
                continue
            value = _smi_value(cell)
            if value is None:
                counts.blank += 1
            else:
                counts.samples += 1
                yield Sample(at, one, cells["uuid"], device, hostname, value, labels)


def _smi_time(text: str) -> int | None:
    try:
        moment = datetime.strptime(text.strip(), _SMI_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def _smi_value(cell: str) -> float | None:
    """A number with or without its unit, a hexadecimal mask, a state (P0), yes or no; None for no value."""
    text = cell.strip()
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    number = text.split(" ")[0]
    try:
        if number.lower().startswith("0x"):
            return float(int(number, 16))
        value = float(number[1:] if number[:1] == "P" and number[1:].isdigit() else number)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
