"""The progress of a delay partition, as control records in its own log.

Before messages are written to the target, a plan names them, with the producer id and the sequence of their
batch. After the plan has ended, a second record has its outcome. A plan without one may or may not have been
carried out: the next leader writes the same batch again, and the target refuses it as a duplicate.

Clients can neither write control records nor see them. Version 0 of the records had no topic id, no producer
id in the end of a plan, and no outcome: all plans that ended had been carried out.
"""

from __future__ import annotations

import json
from enum import StrEnum
from struct import Struct, error
from typing import Any, Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.model.ids import TopicId, format_topic_id, parse_topic_id
from penstock.ports import Buffer
from penstock.records.control import control_type
from penstock.records.record import Record, build_batch, iter_records

__all__ = ["Done", "Outcome", "Plan", "Target", "build_done", "build_plan", "parse_progress"]

_KEY: Final = Struct(">hh")
_VERSION: Final = 1
#: control types that are not Kafka's; readers skip types that they do not know
_PLAN: Final = 10_000
_DONE: Final = 10_001


class Target(NamedTuple):
    """A partition of a target topic."""

    topic: str
    partition: int
    #: None in a plan of version 0
    topic_id: TopicId | None = None


class Plan(NamedTuple):
    """Messages that are written to one partition of the target, in one batch."""

    target: Target
    producer_id: int
    sequence: int
    #: of the messages in the delay partition, in the order of the batch
    offsets: tuple[int, ...]


class Outcome(StrEnum):
    """How a plan has ended."""

    #: the messages are in the target
    MOVED = "moved"
    #: the messages are not in the target, and wait again
    RETURNED = "returned"
    #: the messages do not wait any more; only earlier versions wrote it
    DROPPED = "dropped"


class Done(NamedTuple):
    """The end of a plan."""

    target: Target
    sequence: int
    #: None in a record of version 0
    producer_id: int | None = None
    outcome: Outcome = Outcome.MOVED

    def ends(self, plan: Plan) -> bool:
        return self.sequence == plan.sequence and self.producer_id in (None, plan.producer_id)


def build_plan(plan: Plan, now_ms: int) -> bytes:
    return _build(_PLAN, [_fields(plan.target), plan.producer_id, plan.sequence, plan.offsets], now_ms)


def build_done(done: Done, now_ms: int) -> bytes:
    return _build(_DONE, [_fields(done.target), done.sequence, done.producer_id, done.outcome], now_ms)


def parse_progress(batch: Buffer) -> Plan | Done | None:
    """The plan, or its end, in a control batch; None for other kinds."""
    record = next(iter(iter_records(batch)), None)
    if record is None:
        return None
    kind = control_type(record.key)
    if kind not in (_PLAN, _DONE):
        return None
    try:
        version, _ = _KEY.unpack_from(record.key or b"")
        if version > _VERSION:
            raise CorruptMessage(
                f"the progress of a delay partition has version {version}; this broker reads versions up to "
                f"{_VERSION}: upgrade it"
            )
        fields: Any = json.loads(record.value or b"")
        if kind == _DONE:
            target, sequence, *rest = fields
            if not rest:
                return Done(_target(*target), int(sequence))
            producer_id, outcome = rest
            return Done(_target(*target), int(sequence), int(producer_id), Outcome(outcome))
        target, producer_id, sequence, offsets = fields
        return Plan(_target(*target), int(producer_id), int(sequence), tuple(map(int, offsets)))
    except (TypeError, ValueError, error) as e:
        raise CorruptMessage(f"the progress of a delay partition is damaged: {e}") from e


def _fields(target: Target) -> list[Any]:
    if target.topic_id is None:
        return [target.topic, target.partition]
    return [target.topic, target.partition, format_topic_id(target.topic_id)]


def _target(topic: Any, partition: Any, topic_id: Any = None) -> Target:
    known = None if topic_id is None else parse_topic_id(str(topic_id))
    return Target(str(topic), int(partition), known)


def _build(kind: int, fields: list[Any], now_ms: int) -> bytes:
    value = json.dumps(fields, separators=(",", ":")).encode()
    return build_batch([Record(0, now_ms, _KEY.pack(_VERSION, kind), value)], control=True)
