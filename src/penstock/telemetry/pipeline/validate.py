"""Stage 1: which messages are samples. Every row goes on, with a reason if it is none.

A reason is one of `REASONS`; null means valid. Fields are known by their numbers from here on. Messages
are judged in whole columns, and each text once for all equal rows of a block: a host repeats the name and
the time of each GPU forty times.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, DoubleType, StringType, StructType

from penstock.spark.json_values import AS_WRITTEN, JsonValues
from penstock.telemetry.fields import FIELDS, FIRST_BLANK, FieldType
from penstock.telemetry.message import MalformedSample, parse_timestamp
from penstock.telemetry.pipeline.columns import Floats, Ints, Mask, shard_of_gpu, task_of_shard
from penstock.telemetry.pipeline.shard import ROWS
from penstock.telemetry.workloads import WORKLOAD_LABELS, workload_of

__all__ = ["REASONS", "judge", "now_ms", "validate"]

#: The message's JSON. Labels stay as they are written: samples of a GPU have the same, which are read once.
_SAMPLE: Final = StructType()
for _name in ("timestamp", "metric_name", "gpu_id", "device", "hostname"):
    _SAMPLE.add(_name, StringType())
_SAMPLE.add("value", DoubleType()).add("labels", BinaryType(), metadata=AS_WRITTEN)
_DECODER: Final = JsonValues(_SAMPLE)
_LABELS: Final = msgspec.json.Decoder(dict[str, Any])
_MESSAGE: Final = ("value", "topic", "partition", "offset")
_BLOCK_DDL: Final = "task INT, rows BINARY, read INT"

REASONS: Final = (
    "not a sample",
    "no GPU",
    "unknown metric",
    "no time",
    "from the future",
    "no value",
    "blank",
    "out of range",
)
_NAMES: Final = {name: each.id for each in FIELDS.values() for name in (each.name, *each.aliases)}
_UNKNOWN: Final = min(FIELDS) - 1
_NEVER: Final = np.iinfo(np.int64).min


def _limits(limit: Callable[[int], float]) -> Floats:
    """By field; numbers below zero count from the end, as in numpy. Unknown fields have no limit."""
    table = np.full(max(FIELDS) - _UNKNOWN + 1, np.nan)
    for number in FIELDS:
        table[number] = limit(number)
    return table


_FIRST_BLANK: Final = _limits(lambda number: float(FIRST_BLANK[FieldType(FIELDS[number].type)]))
_LOW: Final = _limits(lambda number: FIELDS[number].low)
_HIGH: Final = _limits(lambda number: FIELDS[number].high)


def validate(
    messages: DataFrame,
    tasks: int,
    now_ms: int,
    ahead_ms: int,
    workload_labels: Sequence[str] = WORKLOAD_LABELS,
) -> DataFrame:
    """Blocks of judged messages: rows of ROWS, as an Arrow stream, of GPUs that belong to one task.

    `read` adds up to the messages that were read. It is counted before anything is done with them, and goes
    with the blocks: a task that Spark runs again is not counted again.

    A sample from more than `ahead_ms` after `now_ms` is refused: it would move the watermark past all others.
    """

    def blocks(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in filter(len, batches):
            rows = judge(batch, now_ms + ahead_ms, workload_labels)
            owners = _task_of(rows, tasks)
            found = [(task, rows.filter(pa.array(owners == task))) for task in np.unique(owners)]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([task for task, _ in found], pa.int32()),
                    pa.array([_stream(part) for _, part in found], pa.binary()),
                    pa.array([len(batch), *(0 for _ in found[1:])], pa.int32()),
                ],
                ["task", "rows", "read"],
            )

    return messages.select(*_MESSAGE).mapInArrow(blocks, _BLOCK_DDL)


def judge(messages: Any, latest_ms: int, workload_labels: Sequence[str] = WORKLOAD_LABELS) -> Any:
    """Rows of ROWS from messages of the connector, one for each."""
    samples, _ = _DECODER.decode(messages["value"])
    timestamp, metric, gpu, device, hostname, value, labels = map(_encoded, samples.flatten())
    are_labels, about = _about(labels, workload_labels)
    field = _each(metric, lambda name: _NAMES.get(name, _UNKNOWN), _UNKNOWN)
    at = _each(timestamp, _milliseconds, _NEVER)
    values = value.to_numpy(zero_copy_only=False)
    reason = _reasons(
        samples.is_null().to_numpy(zero_copy_only=False) | ~are_labels,
        _each(gpu, bool, False) == 0,
        field == _UNKNOWN,
        at == _NEVER,
        at > latest_ms,
        np.isnan(values),
        values >= _FIRST_BLANK[field],
        (values < _LOW[field]) | (values > _HIGH[field]),
    )
    columns = [gpu, pa.array(field.astype(np.int32), mask=field == _UNKNOWN), pa.array(at, mask=at == _NEVER)]
    columns += [value, hostname, device, *about, reason, _encoded(messages["topic"])]
    # The bytes are only of use where they end as a dead letter.
    raw = pc.if_else(reason.is_valid(), messages["value"], None)
    return pa.table([*columns, messages["partition"], messages["offset"], raw], schema=ROWS)


def _about(labels: Any, workload_labels: Sequence[str]) -> tuple[Mask, list[Any]]:
    """Whether labels are labels; columns of PCI address, model, workload, job, pod and namespace."""
    encoded = labels.dictionary_encode()
    parsed = [_labels_of(text) for text in encoded.dictionary.to_pylist()]
    named = [
        (_text_of(each, "pci_bus_id"), _text_of(each, "model_name"), *workload_of(each, workload_labels))
        for each in (one or {} for one in parsed)
    ]
    place = encoded.indices.fill_null(len(parsed)).to_numpy()
    columns = []
    for texts in zip(*named, (None,) * 6, strict=True):
        # One dictionary entry for each name: many labels may say the same.
        distinct = pa.array(texts, pa.string()).dictionary_encode()
        columns.append(
            pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(place)), distinct.dictionary)
        )
    return np.array([*(each is not None for each in parsed), True])[place], columns


def _labels_of(text: bytes) -> dict[str, Any] | None:
    try:
        return _LABELS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _text_of(labels: dict[str, Any], name: str) -> str | None:
    text = labels.get(name)
    return None if text is None else str(text)


def _encoded(column: Any) -> Any:
    return column.dictionary_encode() if column.type == pa.string() else column


def _each(texts: Any, meaning: Callable[[str], int], nothing: int) -> Ints:
    """The meaning of each text; `nothing` for null."""
    meanings = np.array([*map(meaning, texts.dictionary.to_pylist()), nothing], np.int64)
    found: Ints = meanings[texts.indices.fill_null(len(meanings) - 1).to_numpy()]
    return found


def _milliseconds(text: str) -> int:
    try:
        return parse_timestamp(text)
    except MalformedSample:
        return _NEVER


def _reasons(*verdicts: Mask) -> Any:
    """The first of REASONS whose verdict is true; null where none is."""
    found = np.full(len(verdicts[0]), -1, np.int32)
    for number, verdict in reversed(list(enumerate(verdicts))):
        found[verdict] = number
    return pa.DictionaryArray.from_arrays(pa.array(found, mask=found < 0), pa.array(REASONS))


def _task_of(rows: Any, tasks: int) -> Ints:
    """The task of each row: that of its GPU's virtual shard. Rows without a GPU go to any task."""
    gpus = rows["gpu_id"].chunk(0)
    nowhere = -1
    owners = _each(gpus, lambda gpu: task_of_shard(shard_of_gpu(gpu), tasks), nowhere)
    return np.where(owners == nowhere, rows["partition"].to_numpy() % tasks, owners)


def _stream(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def now_ms() -> int:
    """The time that a batch gets; the only clock of the pipeline."""
    return int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
