"""The progress of a delay partition, as control records in its own log.

Before messages are written to the target, a plan names them, with the producer id and the sequence of their
batch. After they are committed there, a second record says so. A plan without one may or may not have been
carried out: the next leader writes the same batch again, and the target refuses it as a duplicate.

Clients can neither write control records nor see them.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.control import control_type
from penstock.records.record import Record, build_batch, iter_records

__all__ = ["Done", "Plan", "Target", "build_done", "build_plan", "parse_progress"]

_KEY: Final = Struct(">hh")
_VERSION: Final = 0
#: control types that are not Kafka's; readers skip types that they do not know
_PLAN: Final = 10_000
_DONE: Final = 10_001


class Target(NamedTuple):
    """A partition of a target topic."""

    topic: str
    partition: int


class Plan(NamedTuple):
    """Messages that are written to one partition of the target, in one batch."""

    target: Target
    producer_id: int
    sequence: int
    #: of the messages in the delay partition, in the order of the batch
    offsets: tuple[int, ...]


class Done(NamedTuple):
    """A plan that was carried out."""

    target: Target
    sequence: int


def build_plan(plan: Plan, now_ms: int) -> bytes:
    return _build(_PLAN, list(plan), now_ms)


def build_done(done: Done, now_ms: int) -> bytes:
    return _build(_DONE, list(done), now_ms)


def parse_progress(batch: Buffer) -> Plan | Done | None:
    """The plan, or its end, in a control batch; None for other kinds."""
    record = next(iter(iter_records(batch)), None)
    if record is None:
        return None
    kind = control_type(record.key)
    if kind not in (_PLAN, _DONE):
        return None
    try:
        fields: Any = json.loads(record.value or b"")
        if kind == _DONE:
            target, sequence = fields
            return Done(_target(*target), int(sequence))
        target, producer_id, sequence, offsets = fields
        return Plan(_target(*target), int(producer_id), int(sequence), tuple(map(int, offsets)))
    except (TypeError, ValueError) as e:
        raise CorruptMessage(f"the progress of a delay partition is damaged: {e}") from e


def _target(topic: Any, partition: Any) -> Target:
    return Target(str(topic), int(partition))


def _build(kind: int, fields: list[Any], now_ms: int) -> bytes:
    value = json.dumps(fields, separators=(",", ":")).encode()
    return build_batch([Record(0, now_ms, _KEY.pack(_VERSION, kind), value)], control=True)
