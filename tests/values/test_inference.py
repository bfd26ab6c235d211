"""The columns of values without a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.values.fitting import fit
from penstock.values.inference import inferred, new_fields
from penstock.values.types import added, is_json

NOTHING = pa.struct([])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**63], pa.float64()),
        ([True], pa.bool_()),
        (["x", None], pa.string()),
        ([[1], [], [2.5]], pa.list_(pa.float64())),
        ([{"a": 1}, {"b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([[{"a": 1}, {"a": 2.5}]], pa.list_(pa.struct([("a", pa.float64())]))),
    ],
)
def test_a_field_has_the_type_of_its_values(values: list[Any], kind: pa.DataType) -> None:
    assert new_fields([{"x": value} for value in values], NOTHING) == pa.struct([("x", kind)])


@pytest.mark.parametrize("values", [[None], [{}], [[]], [[None]], [{"a": None}]])
def test_values_without_a_type_make_no_column(values: list[Any]) -> None:
    assert new_fields([{"x": value} for value in values], NOTHING) == NOTHING


@pytest.mark.parametrize("values", [[1, "x"], [[1, "x"]], [{"a": 1}, [1]], [True, 1]])
def test_a_field_of_several_types_is_json_text(values: list[Any]) -> None:
    (field,) = new_fields([{"x": value} for value in values], NOTHING)
    assert is_json(field)
    fitted = fit([{"x": value} for value in values], pa.struct([field]))
    assert fitted.reasons == [None] * len(values)


def test_only_new_fields_are_found() -> None:
    known = pa.struct([("a", pa.int64()), ("o", pa.struct([("p", pa.int64())]))])
    rows: list[Any] = [{"a": "another type", "o": {"p": 1}}, {"o": {"q": [1]}, "b": True}]
    assert new_fields(rows, known) == pa.struct(
        [("b", pa.bool_()), ("o", pa.struct([("q", pa.list_(pa.int64()))]))]
    )
    assert len(new_fields(rows[:1], known)) == 0


def test_new_fields_are_found_in_maps() -> None:
    known = pa.struct([("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())])))])
    found = new_fields([{"m": {"x": {"a": 1}}}, {"m": {"y": {"b": True}, "z": None}}], known)
    assert found == pa.struct([("m", pa.map_(pa.string(), pa.struct([("b", pa.bool_())])))])
    assert len(new_fields([{"m": {"x": {"a": 2}}}, {"m": 5}], known)) == 0


def test_a_value_that_is_nested_without_end_is_json_text() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    (field,) = new_fields([{"x": value}], NOTHING)
    assert is_json(field)
    assert inferred(1) == pa.int64()


#: each has a type: empty lists and objects fit lists and objects only
_TYPED = st.recursive(
    st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from("ab"), inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
_ROWS = st.lists(
    st.dictionaries(st.sampled_from("kl"), st.none() | _TYPED, max_size=2), min_size=1, max_size=3
)


@settings(max_examples=40, deadline=None)
@given(_ROWS, _ROWS)
def test_rows_fit_the_columns_that_they_bring(rows: list[Any], more: list[Any]) -> None:
    """And the columns of later rows leave those that are there as they are."""
    first = added(NOTHING, new_fields(rows, NOTHING))
    fitted = fit(rows, first)
    assert fitted.reasons == [None] * len(rows)
    assert len(fitted.column) == len(rows)
    later = added(first, new_fields(more, first))
    assert [field.name for field in later][: len(first)] == [field.name for field in first]
    assert added(later, new_fields(more, later)) == later
