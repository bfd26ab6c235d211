"""Records of decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.exactly_once.decisions import (
    CLOSED,
    Decision,
    DecisionDamaged,
    Prepared,
    decode_decision,
    encode_decision,
)

transactions = st.builds(
    Prepared, st.text(max_size=8), st.integers(0, 2**62), st.integers(0, 32767), st.integers(0, 2**62)
)


@given(st.integers(0, 2**62), st.lists(transactions, max_size=5))
def test_a_decision_is_read_as_it_was_written(batch: int, named: list[Prepared]) -> None:
    decision = Decision("query", batch, tuple(named), 17)
    assert decode_decision("query", encode_decision(decision)) == decision


def test_the_common_start_of_ids_is_stored_once() -> None:
    ids = [f"penstock-spark.0a1b2c3d.query.5.{task}.{task:012x}" for task in range(100)]
    decision = Decision("query", 5, tuple(Prepared(each, 1000, 0, 10) for each in ids))
    assert len(encode_decision(decision)) < 100 * 35


def test_a_tombstone_closes_the_query() -> None:
    assert decode_decision("query", None) == Decision("query", CLOSED, ())


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"\xff", b'{"v":1,"batch":"x","at_ms":0,"start":"","transactions":[]}']
)
def test_damaged_records_are_refused(value: bytes) -> None:
    with pytest.raises(DecisionDamaged, match="the decision of query orders cannot be read"):
        decode_decision("orders", value)


def test_records_of_later_versions_are_refused() -> None:
    value = encode_decision(Decision("query", 1, ())).replace(b'"v":1', b'"v":2')
    with pytest.raises(DecisionDamaged, match="has version 2, not 1"):
        decode_decision("query", value)
