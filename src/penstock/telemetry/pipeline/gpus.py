"""The GPUs of a shard: their numbers, and what their newest samples say about them.

Texts are dictionary-encoded from where messages are read, so they are looked at once for each GPU and block,
and never for each sample.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.pipeline.columns import Ints

__all__ = ["ABOUT", "GPUS", "about_columns", "gpus_of", "number_gpus"]

#: what is said about a GPU beside its values
ABOUT: Final = ("hostname", "model", "workload", "job", "pod", "namespace")
GPUS: Final = pa.schema(
    [
        ("gpu_id", pa.string()),
        *((name, pa.string()) for name in ABOUT),
        ("at", pa.int64()),
        # the end of the last window that was closed before its time; 0 for none
        ("closed", pa.int64()),
    ]
)
_COLUMNS: Final = GPUS.names
#: what a GPU may cease to have: a newest sample without it says so
_TRANSIENT: Final = ("workload", "job", "pod", "namespace")


def gpus_of(kept: Any) -> Any:
    """Kept GPUs with the columns of GPUS; those that an older version did not keep are null, or 0."""
    size = len(kept)
    columns = [
        kept[each.name].cast(each.type)
        if each.name in kept.column_names
        else pa.nulls(size, each.type).fill_null(0)
        if pa.types.is_integer(each.type)
        else pa.nulls(size, each.type)
        for each in GPUS
    ]
    return pa.table(columns, schema=GPUS)


def number_gpus(known: Any, samples: Any) -> tuple[Any, Ints]:
    """The GPUs with what the newest samples say about them, and the number of each sample's GPU.

    A GPU's number is its row, for ever. What the newest sample does not say stays as an older one said it;
    only its workload, job, pod and namespace end so.
    """
    told, codes = _told(samples)
    place = pc.index_in(told["gpu_id"], known["gpu_id"])
    grown = pa.concat_tables([known, told.filter(pc.is_null(place))]).combine_chunks()
    latest = pa.concat_tables([grown, told]).sort_by([("at", "ascending")])
    newest: list[Any] = [
        (name, "last", pc.ScalarAggregateOptions(skip_nulls=name not in _TRANSIENT))
        for name in _COLUMNS[1:-1]
    ]
    newest.append(("closed", "max"))
    latest = latest.group_by("gpu_id", use_threads=False).aggregate(newest)
    latest = latest.rename_columns(_COLUMNS)
    gpus = latest.take(pc.index_in(grown["gpu_id"], latest["gpu_id"])).cast(GPUS).combine_chunks()
    numbers = pc.index_in(told["gpu_id"], gpus["gpu_id"]).to_numpy().astype(np.int64)
    return gpus, numbers[codes]


def _told(samples: Any) -> tuple[Any, Ints]:
    """The GPUs that samples are of, in order of their names, and for each sample the row of its GPU there."""
    gpu_ids = samples["gpu_id"].combine_chunks()
    codes = gpu_ids.indices.to_numpy().astype(np.int64)
    at = samples["at"].to_numpy()
    present = np.unique(codes)
    names = gpu_ids.dictionary.take(pa.array(present))
    by_name = pc.sort_indices(names).to_numpy()
    row_of = np.zeros(len(gpu_ids.dictionary), np.int64)
    row_of[present[by_name]] = np.arange(len(present))
    rows = row_of[codes]
    # Of those that are assigned to one place the last one stays: the newest.
    order = np.argsort(at, kind="stable")
    columns = [names.take(pa.array(by_name))]
    columns += [
        _newest(samples[name].combine_chunks(), rows, order, len(present), skip_nulls=name not in _TRANSIENT)
        for name in ABOUT
    ]
    newest_at = np.zeros(len(present), np.int64)
    newest_at[rows[order]] = at[order]
    return pa.table([*columns, newest_at, np.zeros(len(present), np.int64)], schema=GPUS), rows


def _newest(texts: Any, rows: Ints, order: Ints, size: int, *, skip_nulls: bool) -> Any:
    """For each row the newest text; null where there is none."""
    place = np.full(size, -1, np.int64)
    if skip_nulls and texts.null_count:
        order = order[texts.is_valid().to_numpy(zero_copy_only=False)[order]]
    place[rows[order]] = order
    return texts.take(pa.array(place, mask=place < 0)).cast(pa.string())


def about_columns(gpus: Any, numbers: Ints) -> list[Any]:
    """`gpu_id` and ABOUT of the GPUs with these numbers, dictionary-encoded."""
    columns = []
    for name in ("gpu_id", *ABOUT):
        # Encoded anew: a dictionary that names something twice is no dictionary for Parquet.
        encoded = gpus[name].combine_chunks().dictionary_encode()
        columns.append(
            pa.DictionaryArray.from_arrays(encoded.indices.take(pa.array(numbers)), encoded.dictionary)
        )
    return columns
