"""Deals the messages of an upsert to tasks by their buckets, and proves that all tasks got the same deal.

A bucket follows from the name of a key, which follows from a registry. If an executor is lost, Spark reads
its messages again for the tasks that have not had them. A registry that has got a schema meanwhile gives some
of them other buckets: a message would come to two tasks, or to none. So each reader of messages sends the
digest of what it has dealt to every task, and the driver compares what the tasks have got.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables.keys import KeyReader, ReadKeys
from penstock.tables.upserting import bucket_of

__all__ = ["BUCKET", "Dealt", "dealt", "received"]

#: The key of a message is read once: what it is decides which task has the message.
_KEY_NAME: Final = "key_name"
_KEY_REASON: Final = "key_reason"
#: modulo the number of tasks, it is the number of the task; of digests it is negative
BUCKET: Final = "bucket"
_DIGEST_SIZE: Final = 16


class Dealt(NamedTuple):
    """What one task has got."""

    #: in the order of partitions and offsets
    messages: Any
    #: of all that readers have dealt, also to other tasks
    digest: str

    def by_bucket(self) -> Iterator[tuple[int, Any, ReadKeys]]:
        """The messages of each bucket, and their keys."""
        buckets = self.messages[BUCKET].to_numpy()
        for bucket in np.unique(buckets).tolist():
            own = self.messages.filter(pa.array(buckets == bucket)).combine_chunks()
            yield bucket, own, ReadKeys(own[_KEY_NAME].to_pylist(), own[_KEY_REASON].to_pylist())


def dealt(blocks: Iterable[Any], keys: KeyReader, buckets: int, tasks: int) -> Iterator[Any]:
    """Blocks with names of keys and buckets of messages, and at the end a digest for each task."""
    digest, last = blake2b(digest_size=_DIGEST_SIZE), None
    for block in blocks:
        last = block
        raw = block["key"].to_pylist()
        read = keys.read(raw)
        # A message whose key has no name becomes a dead letter, wherever.
        numbers = [
            bucket_of(key if name is None else name, buckets)
            for key, name in zip(raw, read.names, strict=True)
        ]
        columns = [block["partition"], block["offset"], pa.array(numbers, pa.int64())]
        # Row by row: the blocks of another try may end elsewhere.
        digest.update(np.stack([each.to_numpy().astype("<i8") for each in columns], axis=1).tobytes())
        yield _block(block.columns, block.schema.names, read, numbers)
    if last is not None:
        nothing = [pa.nulls(tasks, field.type) for field in last.schema]
        named = ReadKeys([digest.digest()] * tasks, [None] * tasks)
        yield _block(nothing, last.schema.names, named, [number - tasks for number in range(tasks)])


def _block(columns: list[Any], names: list[str], read: ReadKeys, numbers: list[int]) -> Any:
    own = [
        pa.array(read.names, pa.binary()),
        pa.array(read.reasons, pa.string()),
        pa.array(numbers, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays([*columns, *own], [*names, _KEY_NAME, _KEY_REASON, BUCKET])


def received(blocks: Iterable[Any]) -> Dealt | None:
    """What has come to a task from all readers; None if nothing."""
    given = [block for block in blocks if len(block)]
    if not given:
        return None
    # Blocks of several tasks come in any order.
    rows = pa.Table.from_batches(given).sort_by([("partition", "ascending"), ("offset", "ascending")])
    is_message = pc.greater_equal(rows[BUCKET], 0)
    digests = rows.filter(pc.invert(is_message))[_KEY_NAME].to_pylist()
    whole = blake2b(b"".join(sorted(digests)), digest_size=_DIGEST_SIZE).hexdigest()
    return Dealt(rows.filter(is_message), whole)
