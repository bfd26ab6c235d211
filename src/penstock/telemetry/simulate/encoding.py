"""A tick's values as messages, put together from pieces that never change.

All that differs between two samples of one field of one GPU is the time and the value. The rest is written
once; values become text in bulk, in C. So a message costs one `join`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.message import Message, format_timestamp
from penstock.telemetry.simulate.fleet import GPUS_PER_HOST, Fleet, Floats

__all__ = ["Encoder"]


class Encoder:
    """Messages of a fleet, for columns that are these fields."""

    def __init__(self, fleet: Fleet, fields: Sequence[int]) -> None:
        self._fields = len(fields)
        self._keys = [uuid.encode() for uuid in fleet.uuids]
        self._heads = [f'","metric_name":"{FIELDS[number].name}'.encode() for number in fields]
        self._middles = [
            f'","gpu_id":"{uuid}","device":"nvidia{gpu % GPUS_PER_HOST}",'
            f'"hostname":"{fleet.hostnames[gpu // GPUS_PER_HOST]}","value":'.encode()
            for gpu, uuid in enumerate(fleet.uuids)
        ]
        self._tails = [
            f',"labels":{json.dumps(fleet.labels(gpu), separators=(",", ":"))}}}'.encode()
            for gpu in range(fleet.gpus)
        ]

    def encode(self, values: Floats, host: int, timestamp_ms: int, silent: frozenset[int]) -> list[Message]:
        """The samples of one host at one time; `values` has the rows of all GPUs."""
        messages: list[Message] = []
        start = f'{{"timestamp":"{format_timestamp(timestamp_ms)}'.encode()
        join, append, heads = b"".join, messages.append, self._heads
        for gpu in range(host * GPUS_PER_HOST, (host + 1) * GPUS_PER_HOST):
            if gpu in silent:
                continue
            key, middle, tail = self._keys[gpu], self._middles[gpu], self._tails[gpu]
            texts = msgspec.json.encode(values[gpu].tolist())[1:-1].split(b",")
            for head, text in zip(heads, texts, strict=True):
                append(Message(key, join((start, head, middle, text, tail)), timestamp_ms))
        return messages
