"""The features of detectors: the last value of each relevant field, per GPU and step of ten seconds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.fields import FIELDS, Kind

__all__ = [
    "ABOUT",
    "COUNTERS",
    "FEATURES",
    "FEATURES_SCHEMA",
    "LAST_CODES",
    "STEP_MS",
    "column_of",
    "features",
    "reached",
]

STEP_MS: Final = 10_000
#: the fields by number, in the order of a matrix's columns
FEATURES: Final = (100, 112, 150, 155, 203, 230, 240, 241, 310, 311, 393, 395, 396, 1002, 160, 164, 252)
COUNTERS: Final = np.array([FIELDS[each].kind is Kind.COUNTER for each in FEATURES])
LAST_CODES: Final = np.array([FIELDS[each].kind is Kind.LAST_CODE for each in FEATURES])
_COLUMN: Final = {number: column for column, number in enumerate(FEATURES)}
#: the same by number, -1 for unused fields; negative numbers count from the end, as in numpy
_COLUMN_OF: Final = np.full(max(FIELDS) - min(FIELDS) + 1, -1)
_COLUMN_OF[list(FEATURES)] = np.arange(len(FEATURES))
#: what is said of a GPU beside its values
ABOUT: Final = ("hostname", "device", "pci_bus_id", "model", "workload", "job", "pod")
_NAMES: Final = ("gpu_id", *ABOUT)
FEATURES_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int64()),
        # the newest sample of the GPU in the step
        ("at", pa.int64()),
        *((name, pa.string()) for name in _NAMES),
        *((str(each), pa.float64()) for each in FEATURES),
    ]
)


def column_of(field_id: int) -> int:
    return _COLUMN[field_id]


def features(samples: Any) -> Any:
    """Rows of FEATURES_SCHEMA from samples in any order; a GPU that sent other fields only has one too."""
    if not len(samples):
        return FEATURES_SCHEMA.empty_table()
    gpus = samples["gpu_id"].combine_chunks().dictionary_encode()
    at = samples["at"].to_numpy()
    steps, step = np.unique(at // STEP_MS * STEP_MS, return_inverse=True)
    # A row for each GPU and step that there is, in order of both.
    rank = pc.rank(gpus.dictionary).to_numpy().astype(np.int64)
    cells, row = np.unique(rank[gpus.indices.to_numpy()] * len(steps) + step, return_inverse=True)
    # Samples in order of time: of those that are assigned to one place the last one stays.
    order = np.argsort(at, kind="stable")
    last = np.empty(len(cells), np.int64)
    last[row[order]] = order
    column = _COLUMN_OF[samples["field"].to_numpy()[order]]
    wanted = column >= 0
    matrix = np.full((len(cells), len(FEATURES)), np.nan)
    matrix[row[order][wanted], column[wanted]] = samples["value"].to_numpy()[order][wanted]
    about = [samples[name].combine_chunks().take(pa.array(last)).cast(pa.string()) for name in _NAMES]
    times = [pa.array(steps[step[last]]), pa.array(at[last])]
    return pa.table([*times, *about, *matrix.T], schema=FEATURES_SCHEMA)


def reached(signals: Any) -> int:
    """The time that half of the GPUs in a batch's signals have reached; 0 if there is none.

    The newest time of all would be that of the one whose clock is fastest, and by it all others were late.
    """
    if not len(signals):
        return 0
    gpus = signals["gpu_id"].combine_chunks()
    newest = np.zeros(len(gpus.dictionary), np.int64)
    np.maximum.at(newest, gpus.indices.to_numpy(), signals["at"].to_numpy())
    newest = np.sort(newest[newest > 0])
    return int(newest[(len(newest) - 1) // 2])
