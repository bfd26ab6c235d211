"""The GPUs of a task: their numbers, and what their newest samples say about them.

Texts are dictionary-encoded from where messages are read, so they are looked at once for each GPU and block,
and never for each sample.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.pipeline.columns import Ints, first_number, shard_of_gpu, shard_of_number

__all__ = ["ABOUT", "GPUS", "TRANSIENT", "about_columns", "number_gpus", "places_of"]

#: what is said about a GPU beside its values
ABOUT: Final = ("hostname", "device", "pci_bus_id", "model", "workload", "job", "pod", "namespace")
#: in order of their numbers
GPUS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("gpu_id", pa.string()),
        *((name, pa.string()) for name in ABOUT),
        ("at", pa.int64()),
        # the end of the last window that was closed before its time; 0 for none
        ("closed", pa.int64()),
    ]
)
_COLUMNS: Final = GPUS.names
#: what a GPU may cease to have: a newest sample without it says so
TRANSIENT: Final = ("workload", "job", "pod", "namespace")


def places_of(gpus: Any, numbers: Ints) -> Ints:
    """The rows of the GPUs with these numbers."""
    places: Ints = np.searchsorted(gpus["number"].to_numpy(), numbers)
    return places


def number_gpus(known: Any, samples: Any) -> tuple[Any, Ints]:
    """The GPUs with what the newest samples say about them, and the number of each sample's GPU.

    A GPU keeps its number for ever. A field that the newest sample lacks keeps its older value; only
    workload, job, pod and namespace end so.
    """
    described, codes = _described(samples)
    place = pc.index_in(described["gpu_id"], known["gpu_id"])
    new = described.filter(pc.is_null(place))
    grown = pa.concat_tables([known, _numbered(new, known["number"].to_numpy())]).combine_chunks()
    latest = pa.concat_tables([grown, described]).sort_by([("at", "ascending")])
    newest: list[Any] = [("number", "max")]
    newest += [
        (name, "last", pc.ScalarAggregateOptions(skip_nulls=name not in TRANSIENT)) for name in (*ABOUT, "at")
    ]
    newest.append(("closed", "max"))
    latest = latest.group_by("gpu_id", use_threads=False).aggregate(newest)
    latest = latest.rename_columns(["gpu_id", "number", *_COLUMNS[2:]]).select(_COLUMNS)
    gpus = latest.sort_by([("number", "ascending")]).cast(GPUS).combine_chunks()
    row = pc.index_in(described["gpu_id"], gpus["gpu_id"]).to_numpy().astype(np.int64)
    return gpus, gpus["number"].to_numpy()[row[codes]]


def _numbered(new: Any, known: Ints) -> Any:
    """New GPUs, in order of their ids, with the next numbers of their virtual shards."""
    taken = np.unique(shard_of_number(known), return_counts=True)
    sizes = dict(zip(*(each.tolist() for each in taken), strict=True))
    numbers = []
    for gpu_id in new["gpu_id"].to_pylist():
        shard = shard_of_gpu(gpu_id)
        numbers.append(first_number(shard) + sizes.get(shard, 0))
        sizes[shard] = sizes.get(shard, 0) + 1
    return new.set_column(0, GPUS.field(0), pa.array(numbers, pa.int64()))


def _described(samples: Any) -> tuple[Any, Ints]:
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
    columns = [np.full(len(present), -1), names.take(pa.array(by_name))]
    columns += [
        _newest(samples[name].combine_chunks(), rows, order, len(present), skip_nulls=name not in TRANSIENT)
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


def about_columns(gpus: Any, rows: Ints) -> list[Any]:
    """`gpu_id` and ABOUT in these rows of `gpus`, dictionary-encoded."""
    places = pa.array(rows)
    columns = []
    for name in ("gpu_id", *ABOUT):
        # Encoded anew: a dictionary that names something twice is no dictionary for Parquet.
        encoded = gpus[name].combine_chunks().dictionary_encode()
        columns.append(pa.DictionaryArray.from_arrays(encoded.indices.take(places), encoded.dictionary))
    return columns
