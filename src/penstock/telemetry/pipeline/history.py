"""Which workload a GPU had before: a window that closes late is named by the workload of its own time.

A batch of a backfill may be hours long, and the windows of its start close at its end. The table of GPUs has
what their newest samples say. Each change of that is kept here, until all windows before it have closed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.pipeline.columns import Ints, Mask
from penstock.telemetry.pipeline.gpus import ABOUT, TRANSIENT, places_of

__all__ = ["HISTORY", "follow", "named", "still_needed"]

#: What a GPU had up to before `until`, in order of both. Most GPUs have no row.
HISTORY: Final = pa.schema(
    [("number", pa.int64()), ("until", pa.int64()), *((name, pa.string()) for name in TRANSIENT)]
)
_ORDER: Final = [("number", "ascending"), ("until", "ascending")]
_TIME_BITS: Final = 43
_CODES_MAX: Final = 1 << 62
_NEVER: Final = np.iinfo(np.int64).min


def follow(history: Any, known: Any, gpus: Any, samples: Any, places: Ints) -> Any:
    """The history after a batch.

    `known` and `gpus` are the GPUs before and after it, `places` the row of each sample's GPU in `gpus`. A
    sample that is older than its GPU's newest in an earlier batch changes nothing.
    """
    codes = _codes(samples)
    before = places_of(gpus, known["number"].to_numpy())
    is_changed = _changed(known, gpus, codes, places, before)
    rows = np.flatnonzero(is_changed[places])
    if not len(rows):
        return history
    known_place, known_at = np.full(len(gpus), -1), np.full(len(gpus), _NEVER)
    known_place[before], known_at[before] = np.arange(len(known)), known["at"].to_numpy()
    rows = _newest_of_each_time(samples["at"].to_numpy(), places, rows, known_at)
    at, whose, code = samples["at"].to_numpy()[rows], places[rows], codes[rows]
    number = gpus["number"].to_numpy()
    follows = np.concatenate([np.zeros(min(1, len(rows)), bool), whose[1:] == whose[:-1]])
    step = np.flatnonzero(follows & (code != np.roll(code, 1)))
    first = np.flatnonzero(~follows & (known_place[whose] >= 0))
    first = first[_differ(known, known_place[whose[first]], samples, rows[first])]
    parts = [
        history,
        _entries(number[whose[step]], at[step], samples, rows[step - 1]),
        _entries(number[whose[first]], at[first], known, known_place[whose[first]]),
    ]
    return pa.concat_tables(parts).sort_by(_ORDER).combine_chunks()


def still_needed(history: Any, done_ms: int) -> Any:
    """The history without what only windows need that have closed: those that end by `done_ms`."""
    return history.filter(pc.field("until") > done_ms) if len(history) else history


def named(gpus: Any, history: Any, numbers: Ints, ends_ms: Ints) -> tuple[Any, Ints]:
    """A table with ABOUT, and for each window the row in it that names its GPU as it was then.

    `numbers` are the GPUs of windows that end at `ends_ms`.
    """
    places = places_of(gpus, numbers)
    own = gpus.select(["gpu_id", *ABOUT])
    if not len(history):
        return own, places
    changed, until = history["number"].to_numpy(), history["until"].to_numpy()
    unique, rank = np.unique(changed, return_inverse=True)
    # The first change at or after the end of a window ends what the window had.
    keys = (rank << _TIME_BITS) + np.maximum(until, 0)
    wanted = np.minimum(np.searchsorted(unique, numbers), len(unique) - 1)
    found = np.searchsorted(keys, (wanted << _TIME_BITS) + np.maximum(ends_ms, 0))
    has = np.minimum(found, len(keys) - 1)
    is_older = (found < len(keys)) & (changed[has] == numbers)
    then = own.take(pa.array(places_of(gpus, changed)))
    for name in TRANSIENT:
        then = then.set_column(then.column_names.index(name), name, history[name])
    return pa.concat_tables([own, then]), np.where(is_older, len(gpus) + has, places)


def _codes(samples: Any) -> Ints:
    """One number for the texts of each sample: equal numbers have equal texts."""
    codes, size = np.zeros(len(samples), np.int64), 1
    for name in TRANSIENT:
        column = samples[name].combine_chunks()
        values = len(column.dictionary)
        if not values:
            continue
        if size * (values + 1) > _CODES_MAX:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            size = len(codes)
        codes = codes * (values + 1) + column.indices.fill_null(values).to_numpy()
        size *= values + 1
    return codes


def _changed(known: Any, gpus: Any, codes: Ints, places: Ints, before: Ints) -> Mask:
    """The GPUs whose samples differ among themselves, or that have changed since the batch before."""
    is_changed = np.zeros(len(gpus), dtype=bool)
    one = np.zeros(len(gpus), np.int64)
    one[places] = codes
    is_changed[places[one[places] != codes]] = True
    is_changed[before[_differ(known, np.arange(len(known)), gpus, before)]] = True
    return is_changed


def _differ(first: Any, rows: Ints, second: Any, others: Ints) -> Mask:
    """Where the rows of two tables have other texts."""
    differ = np.zeros(len(rows), dtype=bool)
    for name in TRANSIENT:
        texts = [_texts(table, name, places) for table, places in ((first, rows), (second, others))]
        differ |= pc.not_equal(*(pc.fill_null(each, "") for each in texts)).to_numpy(zero_copy_only=False)
    return differ


def _texts(table: Any, name: str, rows: Ints) -> Any:
    return table[name].combine_chunks().take(pa.array(rows)).cast(pa.string())


def _newest_of_each_time(at: Ints, places: Ints, rows: Ints, since: Ints) -> Ints:
    """Of these samples one for each GPU and time, in order of both; none from before `since`."""
    rows = rows[at[rows] >= since[places[rows]]]
    rows = rows[np.lexsort((at[rows], places[rows]))]
    is_last = (np.diff(places[rows]) != 0) | (np.diff(at[rows]) != 0)
    found: Ints = rows[np.append(is_last, True)[: len(rows)]]
    return found


def _entries(numbers: Ints, until: Ints, table: Any, rows: Ints) -> Any:
    columns = [pa.array(numbers), pa.array(until), *(_texts(table, name, rows) for name in TRANSIENT)]
    return pa.table(columns, schema=HISTORY)
