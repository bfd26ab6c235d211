"""Records that librdkafka has sent again with new sequences, which brokers of earlier versions provoke.

They report a gap behind a batch that they have refused as a loss, as Kafka does (ADR 113). librdkafka then
begins a new producer epoch and sends again what it has no response to. No broker can recognise these copies.
A copy in the same producer epoch is the broker's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from chaos.history import Record
from penstock.records.record import iter_batches

__all__ = ["is_renumbered"]


def is_renumbered(topic: Path, copies: Sequence[Record]) -> bool:
    """Whether the copies of one record, by rising offsets, are of one producer in ever later epochs.

    `topic` is the folder of the topic in a broker's data directory.
    """
    producers = [_producer_of(topic, copy) for copy in copies]
    return all(earlier[:2] == later[:2] and earlier[2] < later[2] for earlier, later in pairwise(producers))


def _producer_of(topic: Path, record: Record) -> tuple[int, int, int]:
    """The partition of a record, and the producer id and producer epoch of its batch."""
    for segment in sorted((topic / f"partition-{record.partition}").glob("*.log")):
        for _, batch in iter_batches(segment.read_bytes()):
            if batch.base_offset <= record.offset <= batch.last_offset:
                return record.partition, batch.producer_id, batch.producer_epoch
    raise AssertionError(f"{topic} does not have {record}")
