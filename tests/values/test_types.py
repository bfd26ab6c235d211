"""Columns are added and never change, and names that Delta cannot have are no columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.values.types import added, clash, in_words, is_json, json_field, same_items, unified

INT, TEXT = pa.int64(), pa.string()
KNOWN = pa.struct(
    [("id", INT), ("place", pa.struct([("city", TEXT)])), ("items", pa.list_(pa.struct([("n", INT)])))]
)


def test_new_fields_are_added_at_every_depth() -> None:
    found = pa.struct(
        [
            ("place", pa.struct([("street", TEXT)])),
            ("items", pa.list_(pa.struct([("price", pa.float64())]))),
            ("note", TEXT),
        ]
    )
    grown = added(KNOWN, found)
    assert grown == pa.struct(
        [
            ("id", INT),
            ("place", pa.struct([("city", TEXT), ("street", TEXT)])),
            ("items", pa.list_(pa.struct([("n", INT), ("price", pa.float64())]))),
            ("note", TEXT),
        ]
    )
    assert added(grown, found) == grown


def test_structures_in_maps_grow_as_others_do() -> None:
    def of(*names: str) -> Any:
        structure = pa.struct([(name, INT) for name in names])
        return pa.struct([("m", pa.list_(pa.map_(TEXT, structure)))])

    assert added(of("a"), of("b")) == unified(of("a"), of("b")) == of("a", "b")
    assert same_items(of("a")["m"].type, of("b")["m"].type) == (
        pa.struct([("a", INT)]),
        pa.struct([("b", INT)]),
    )
    assert unified(pa.map_(TEXT, INT), pa.map_(TEXT, TEXT)) is None


def test_a_column_keeps_its_type() -> None:
    assert added(KNOWN, pa.struct([("id", TEXT), ("place", INT)])) == KNOWN


@pytest.mark.parametrize("name", ["ID", "a b", "a=b", "", "_offset", "_Offset", "a;b"])
def test_names_that_cannot_be_columns_are_left_out(name: str) -> None:
    reserved = frozenset({"_offset"})
    assert clash(name, KNOWN, reserved) is not None
    assert added(KNOWN, pa.struct([(name, INT)]), reserved) == KNOWN


@pytest.mark.parametrize("name", ["id", "new", "größe", "x.y"])
def test_other_names_are_columns(name: str) -> None:
    assert clash(name, KNOWN) is None


def test_unified_types_have_the_values_of_both() -> None:
    assert unified(INT, pa.float64()) == pa.float64()
    assert unified(pa.list_(INT), pa.list_(pa.float64())) == pa.list_(pa.float64())
    assert unified(INT, TEXT) is None
    both = unified(pa.struct([("a", INT), ("b", INT)]), pa.struct([("a", TEXT), ("c", TEXT)]))
    assert both == pa.struct([json_field("a"), ("b", INT), ("c", TEXT)])
    assert [is_json(field) for field in both] == [True, False, False]


def test_types_in_words() -> None:
    assert [in_words(kind) for kind in (INT, TEXT, KNOWN, pa.list_(INT), pa.timestamp("us", "UTC"))] == [
        "a long",
        "a string",
        "an object",
        "a list",
        "a timestamp",
    ]


def test_new_structures_have_only_fields_that_delta_can_have() -> None:
    both = pa.struct([("id", INT), ("ID", INT), ("a b", INT), ("in", pa.struct([("x", INT), ("X", TEXT)]))])
    own = pa.struct([("id", INT), ("in", pa.struct([("x", INT)]))])
    found = pa.struct([("u", both), ("list", pa.list_(both)), ("map", pa.map_(TEXT, both))])
    expected = pa.struct([("u", own), ("list", pa.list_(own)), ("map", pa.map_(TEXT, own))])
    assert added(pa.struct([]), found) == expected
    assert added(KNOWN, pa.struct([("place", pa.struct([("u", both)]))])) == added(
        KNOWN, pa.struct([("place", pa.struct([("u", own)]))])
    )


@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, lambda kind: pa.map_(TEXT, kind)])
def test_a_structure_of_which_nothing_is_left_is_no_column(wrap: Callable[[Any], Any]) -> None:
    only = pa.struct([("a b", INT), ("in", wrap(pa.struct([("c;d", INT)])))])
    assert added(KNOWN, pa.struct([("u", wrap(only))])) == KNOWN
