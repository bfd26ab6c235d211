"""The positions of a batch header's fields in the plain tuple that `HEADER.unpack` returns.

Why: the hot path reads a few fields of every batch. Indexing a plain tuple is the fastest way in CPython; a
`BatchHeader` would cost an allocation per batch. The names are those of `BatchHeader`.
"""

from __future__ import annotations

from typing import Final

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 1
LEADER_EPOCH: Final = 2
MAGIC_BYTE: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORD_COUNT: Final = 12
