"""Values that fit become columns without a loss; others have a reason."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from penstock.values.fitting import fit
from penstock.values.types import json_field

NOW = datetime.datetime(2026, 11, 19, 12, tzinfo=datetime.UTC)
INSTANT = pa.timestamp("us", "UTC")


def one(value: Any, kind: Any) -> tuple[Any, str | None]:
    fitted = fit([{"x": value}], pa.struct([("x", kind)]))
    row = fitted.column.to_pylist()[0]
    return None if row is None else row["x"], fitted.reasons[0]


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (1, pa.float64(), 1.0),
        (2.0, pa.int64(), 2),
        ("2026-11-19T12:00:00Z", INSTANT, NOW),
        (NOW.replace(tzinfo=None), INSTANT, NOW),
        ("2026-11-19", pa.date32(), NOW.date()),
        ("YWI=", pa.binary(), b"ab"),
        (UUID(int=1), pa.string(), str(UUID(int=1))),
        (Decimal("1.50"), pa.decimal128(5, 2), Decimal("1.50")),
        ({"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ([{"y": 1, "z": 2}], pa.list_(pa.struct([("y", pa.int64())])), [{"y": 1}]),
        (None, pa.int64(), None),
    ],
)
def test_a_value_that_fits_is_stored(value: Any, kind: Any, stored: Any) -> None:
    assert one(value, kind) == (stored, None)


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (1.5, pa.int64(), "x is a long, and 1.5 does not fit"),
        (2**40, pa.int32(), "x is an int, and 1099511627776 does not fit"),
        (True, pa.int64(), "x is a long, and True does not fit"),
        (True, pa.float64(), "x is a double, and True does not fit"),
        (float("inf"), pa.int64(), "x is a long, and inf does not fit"),
        (1, pa.bool_(), "x is a boolean, and 1 does not fit"),
        (5, pa.string(), "x is a string, and 5 does not fit"),
        ("\ud800", pa.string(), "x is a string, and '\\ud800' does not fit"),
        ("yesterday", INSTANT, "x is a timestamp, and 'yesterday' does not fit"),
        (5, INSTANT, "x is a timestamp, and 5 does not fit"),
        ("text", pa.list_(pa.string()), "x is a list, and 'text' does not fit"),
        ([1], pa.struct([("y", pa.int64())]), "x is an object, and [1] does not fit"),
        ([{"y": "z"}], pa.list_(pa.struct([("y", pa.int64())])), "x[].y is a long, and 'z' does not fit"),
        (Decimal("1.234"), pa.decimal128(5, 2), "does not fit"),
        ("x" * 500, pa.int64(), "…"),
    ],
)
def test_a_value_that_does_not_fit_has_a_reason(value: Any, kind: Any, reason: str) -> None:
    stored, why = one(value, kind)
    assert stored is None and why is not None and reason in why
    assert len(why) < 200


def test_one_misfit_leaves_its_neighbours_as_they_are() -> None:
    rows: list[Any] = [{"a": 1, "b": [1.5]}, {"a": "x"}, None, {"a": 3, "unknown": 4}]
    fitted = fit(rows, pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]))
    assert fitted.column.to_pylist() == [{"a": 1, "b": [1.5]}, None, None, {"a": 3, "b": None}]
    assert [reason is None for reason in fitted.reasons] == [True, False, True, True]


def test_whole_columns_and_single_values_are_stored_alike() -> None:
    kind = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("s", pa.string())]))), ("t", INSTANT)])
    rows: list[Any] = [{"a": 1, "l": [{"s": "x"}, None], "t": NOW}, None, {"l": None}, {"a": 2, "l": []}]
    alone = [fit([row], kind).column.to_pylist()[0] for row in rows]
    slow = fit([*rows, {"a": "misfit"}], kind)
    assert fit(rows, kind).column.to_pylist() == alone == slow.column.to_pylist()[:-1]


def test_a_column_of_several_types_has_json_text() -> None:
    fitted = fit([{"x": [1, "a"]}, {"x": None}, {"x": {"d": NOW.date()}}], pa.struct([json_field("x")]))
    assert fitted.column.to_pylist() == [{"x": '[1,"a"]'}, {"x": None}, {"x": '{"d":"2026-11-19"}'}]
