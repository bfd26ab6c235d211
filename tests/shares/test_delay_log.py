"""Plans and their ends in the log of a delay partition: their encoding, and that of earlier versions."""

from __future__ import annotations

import json

import pytest

from penstock.model.errors import CorruptMessage
from penstock.model.ids import TopicId
from penstock.records.record import Record, build_batch
from penstock.shares.delay_log import Done, Outcome, Plan, Target, build_done, build_plan, parse_progress

ORDERS = Target("orders", 0, TopicId(bytes(range(16))))
_PLAN, _DONE = 10_000, 10_001


def control(kind: int, value: bytes, version: int = 0) -> bytes:
    key = version.to_bytes(2, "big") + kind.to_bytes(2, "big")
    return build_batch([Record(0, 0, key, value)], control=True)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_progress_survives_its_encoding(outcome: Outcome) -> None:
    plan, done = Plan(ORDERS, 7, 3, (1, 5)), Done(ORDERS, 3, 7, outcome)
    assert parse_progress(build_plan(plan, 1)) == plan
    assert parse_progress(build_done(done, 1)) == done
    assert done.ends(plan)
    assert not done.ends(plan._replace(producer_id=8))
    assert not done.ends(plan._replace(sequence=4))


def test_version_0_is_read() -> None:
    target = Target("orders", 2)
    assert parse_progress(control(_PLAN, json.dumps([["orders", 2], 7, 3, [1, 5]]).encode())) == Plan(
        target, 7, 3, (1, 5)
    )
    done = parse_progress(control(_DONE, b'[["orders",2],3]'))
    assert done == Done(target, 3)
    assert isinstance(done, Done)
    assert (done.outcome, done.ends(Plan(target, 7, 3, (1, 5)))) == (Outcome.MOVED, True)


def test_other_control_records_are_skipped() -> None:
    assert parse_progress(control(1, b"")) is None


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (control(_PLAN, b"[1"), "is damaged"),
        (control(_DONE, b'[["orders",2,"short"],3,7,"moved"]', 1), "is damaged"),
        (control(_DONE, b'[["orders",2],3,7,"burnt"]', 1), "is damaged"),
        (control(_PLAN, b"{}", 2), "has version 2; this broker reads versions up to 1: upgrade it"),
    ],
)
def test_malformed_records_are_refused(batch: bytes, message: str) -> None:
    with pytest.raises(CorruptMessage, match=message):
        parse_progress(batch)
