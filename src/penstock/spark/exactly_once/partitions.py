"""The partition of each row of an Arrow batch: by its column, or by the hash of its key as Java's clients do.

Rows without a key go to one partition per Arrow batch, the next one with each.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.murmur2 import murmur2
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.encoding import Ints

__all__ = ["hashes", "partitions_of"]

_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SEED: Final = 0x9747B28C
_WORD: Final = 4
#: longer keys are rare, and are hashed one by one
_KEY_BYTES_MAX: Final = 256


def partitions_of(keys: Any, named: Any, count: int, turn: int, topic: str) -> Ints:
    """`keys` is a binary array or None, `named` the column of partitions or None; `turn` is for null keys."""
    rows = len(keys) if keys is not None else len(named)
    chosen = np.full(rows, turn % count, np.int64)
    if keys is not None:
        is_keyed = np.asarray(keys.is_valid())
        if is_keyed.any():
            chosen[is_keyed] = hashes(keys.drop_null()) % count
    if named is not None:
        wanted = np.asarray(named.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        if len(wanted) and int(wanted.max()) >= count:
            raise WrongOption(f"a row has partition {int(wanted.max())}, and {topic} has {count} partitions")
        chosen = np.where(wanted >= 0, wanted, chosen)
    return chosen


def hashes(keys: Any) -> Ints:
    """Murmur2 of each of a binary array without nulls, without its sign."""
    keys = pa.concat_arrays([keys])
    buffers = keys.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    # Zeros behind the end, where the words of short keys are read and ignored.
    data = np.zeros(int(offsets[-1]) + _WORD, np.uint8)
    if buffers[2] is not None:
        data[: int(offsets[-1])] = np.frombuffer(buffers[2], np.uint8)[: int(offsets[-1])]
    short = lengths <= _KEY_BYTES_MAX
    found = np.zeros(len(keys), np.int64)
    found[short] = _hash_short(data, starts[short], lengths[short])
    for row in np.flatnonzero(~short).tolist():
        found[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return found


def _hash_short(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> Ints:
    hashed = (_SEED ^ lengths).astype(np.uint32)
    words = lengths // _WORD
    for number in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > number)
        mixed = _word(data, starts[rows] + number * _WORD) * _MULTIPLIER
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _MULTIPLIER
        hashed[rows] = (hashed[rows] * _MULTIPLIER) ^ mixed
    left = lengths % _WORD
    rows = np.flatnonzero(left)
    # The bytes behind a key belong to its neighbour.
    mask = ((np.int64(1) << (8 * left[rows])) - 1).astype(np.uint32)
    rest = _word(data, starts[rows] + words[rows] * _WORD) & mask
    hashed[rows] = (hashed[rows] ^ rest) * _MULTIPLIER
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _MULTIPLIER
    hashed ^= hashed >> np.uint32(15)
    return (hashed & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _word(data: npt.NDArray[np.uint8], at: Ints) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for place in range(1, _WORD):
        word |= data[at + place].astype(np.uint32) << np.uint32(8 * place)
    return word
