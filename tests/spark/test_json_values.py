from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as sql

from penstock.spark.errors import WrongOption
from penstock.spark.json_values import JsonValues

FIELDS = [
    ("a", sql.LongType()),
    ("s", sql.StringType()),
    ("m", sql.MapType(sql.StringType(), sql.StringType())),
]
SCHEMA = sql.StructType([sql.StructField(name, kind) for name, kind in FIELDS])
#: No object of this type, however its neighbours look.
EVIL = (
    b"",
    b"{}{}",
    b'{"a":',
    b"null",
    b"[]",
    b"{",
    b"}",
    b'{"a":"}',
    b'{"}',
    b'{"a":1},{"a":2}',
    b'{"a":[1',
    b"2]}",
    b'{"a":"one"}',
    b'{"s":"\xff"}',
    b'{"s":"line\nend"}',
    b'{"a":1}x',
    b'{"a":9223372036854775808}',
)

objects = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=20),
        "m": st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3), max_size=3),
        "other": st.lists(st.integers(), max_size=2),
    },
)


def decoded(values: list[bytes | None], schema: sql.StructType = SCHEMA) -> tuple[list[Any], list[Any]]:
    typed, malformed = JsonValues(schema).decode(pa.array(values, pa.binary()))
    typed.validate(full=True)
    return typed.to_pylist(), malformed.to_pylist()


def expected(value: dict[str, Any]) -> dict[str, Any]:
    entries = value.get("m")
    return {
        "a": value.get("a"),
        "s": value.get("s"),
        "m": None if entries is None else list(entries.items()),
    }


@settings(deadline=None)
@given(rows=st.lists(objects | st.sampled_from(EVIL) | st.none(), min_size=1, max_size=30))
def test_a_row_does_not_depend_on_other_rows(rows: list[dict[str, Any] | bytes | None]) -> None:
    values = [json.dumps(row).encode() if isinstance(row, dict) else row for row in rows]
    typed, malformed = decoded(values)
    assert typed == [expected(row) if isinstance(row, dict) else None for row in rows]
    assert malformed == [row if isinstance(row, bytes) else None for row in rows]


def test_two_wrongs_do_not_make_a_right_count() -> None:
    """Joined as they are, these would be as many objects as values."""
    values: list[bytes | None] = [b'{"s":"}', b'{"}', b"{}{}", b'{"a":1}']
    typed, malformed = decoded(values)
    assert typed == [None, None, None, {"a": 1, "s": None, "m": None}]
    assert malformed == [*values[:3], None]


def test_slices_of_a_column_are_decoded_as_slices() -> None:
    values = pa.array([b"x", b'{"a":1}', b'{"a":2}', b"y"], pa.binary()).slice(1, 2)
    typed, malformed = JsonValues(SCHEMA).decode(values)
    assert [row["a"] for row in typed.to_pylist()] == [1, 2]
    assert malformed.null_count == 2


def test_values_over_several_lines_are_values() -> None:
    assert decoded([b'{\n "a": 1\n}\n', b' {"a":2}'])[0] == [
        {"a": 1, "s": None, "m": None},
        {"a": 2, "s": None, "m": None},
    ]


def test_all_types() -> None:
    inner = sql.StructType([sql.StructField("x y", sql.DoubleType())])
    kinds: dict[str, sql.DataType] = {
        "boolean": sql.BooleanType(),
        "byte": sql.ByteType(),
        "short": sql.ShortType(),
        "int": sql.IntegerType(),
        "float": sql.FloatType(),
        "time": sql.TimestampType(),
        "day": sql.DateType(),
        "bytes": sql.BinaryType(),
        "inner": inner,
        "list": sql.ArrayType(inner),
        "map": sql.MapType(sql.StringType(), sql.ArrayType(sql.LongType())),
    }
    schema = sql.StructType([sql.StructField(name, kind) for name, kind in kinds.items()])
    value = (
        b'{"boolean":true,"byte":-128,"short":1,"int":2,"float":0.5,"time":"2025-07-18T22:00:00+02:00",'
        b'"day":"2025-07-18","bytes":"aGk=","inner":{"x y":1},"list":[{"x y":2},null,{}],'
        b'"map":{"k":[1,null],"n":null}}'
    )
    typed, malformed = decoded([value, b"{}", None, b'{"byte":128}'], schema)
    assert typed[0] == {
        "boolean": True,
        "byte": -128,
        "short": 1,
        "int": 2,
        "float": 0.5,
        "time": datetime.datetime(2025, 7, 18, 20, tzinfo=datetime.UTC),
        "day": datetime.date(2025, 7, 18),
        "bytes": b"hi",
        "inner": {"x y": 1.0},
        "list": [{"x y": 2.0}, None, {"x y": None}],
        "map": [("k", [1, None]), ("n", None)],
    }
    assert typed[1:] == [dict.fromkeys(kinds), None, None]
    assert malformed == [None, None, None, b'{"byte":128}']


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (sql.DecimalType(10, 2), r"value\.f cannot be decimal\(10,2\)"),
        (sql.MapType(sql.IntegerType(), sql.StringType()), r"value\.f cannot be map<int,string>"),
    ],
)
def test_types_that_cannot_be_are_refused(kind: sql.DataType, message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        JsonValues(sql.StructType([sql.StructField("f", kind)]))


def test_not_null_is_refused() -> None:
    with pytest.raises(WrongOption, match=r"value\.f is NOT NULL"):
        JsonValues(sql.StructType([sql.StructField("f", sql.LongType(), nullable=False)]))
