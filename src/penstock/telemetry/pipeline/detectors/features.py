"""What detectors look at: for each GPU and step of ten seconds, the last value of each field that matters."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.fields import FIELDS, Kind

__all__ = ["COUNTERS", "FEATURES", "FEATURES_SCHEMA", "LAST_CODES", "STEP_MS", "column_of", "features"]

STEP_MS: Final = 10_000
#: the fields by number, in the order of a matrix's columns
FEATURES: Final = (100, 112, 150, 155, 203, 230, 240, 241, 310, 311, 393, 395, 396, 1002)
COUNTERS: Final = np.array([FIELDS[each].kind is Kind.COUNTER for each in FEATURES])
LAST_CODES: Final = np.array([FIELDS[each].kind is Kind.LAST_CODE for each in FEATURES])
_COLUMN: Final = {number: column for column, number in enumerate(FEATURES)}
_ABOUT: Final = ("hostname", "job")
FEATURES_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int64()),
        ("gpu_id", pa.string()),
        *((name, pa.string()) for name in _ABOUT),
        *((str(each), pa.float64()) for each in FEATURES),
    ]
)


def column_of(field_id: int) -> int:
    return _COLUMN[field_id]


def features(samples: Any) -> Any:
    """Rows of FEATURES_SCHEMA from samples in any order; a GPU that sent other fields only has one too."""
    if not len(samples):
        return FEATURES_SCHEMA.empty_table()
    ordered = samples.sort_by([("gpu_id", "ascending"), ("at", "ascending"), ("field", "ascending")])
    gpus = ordered["gpu_id"].combine_chunks().dictionary_encode()
    step = ordered["at"].to_numpy() // STEP_MS * STEP_MS
    code = gpus.indices.to_numpy().astype(np.int64)
    starts = np.ones(len(code), dtype=bool)
    starts[1:] = (code[1:] != code[:-1]) | (step[1:] != step[:-1])
    row = np.cumsum(starts) - 1
    # The last place is for all numbers beyond those of FEATURES, on either side.
    columns = np.full(max(FEATURES) + 2, -1)
    columns[list(FEATURES)] = np.arange(len(FEATURES))
    column = columns[np.clip(ordered["field"].to_numpy(), -1, max(FEATURES) + 1)]
    wanted = column >= 0
    matrix = np.full((int(row[-1]) + 1, len(FEATURES)), np.nan)
    # Rows are in order of time, and of equal places the last one assigned stays.
    matrix[row[wanted], column[wanted]] = ordered["value"].to_numpy()[wanted]
    last = pa.array(np.flatnonzero(np.append(starts[1:], True)))
    about = [ordered[name].take(last) for name in ("gpu_id", *_ABOUT)]
    return pa.table([pa.array(step[starts]), *about, *matrix.T], schema=FEATURES_SCHEMA)
