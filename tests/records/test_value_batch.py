"""Batches of values: the bytes of `build_batch`, made in slices."""

from __future__ import annotations

import pytest

from penstock.model.steps import SLICE, at_once
from penstock.records.record import Record, build_batch
from penstock.records.value_batch import value_batch


@pytest.mark.parametrize("count", [1, 2, 200, 3 * SLICE])
def test_the_bytes_are_those_of_any_batch(count: int) -> None:
    values = [b"v" * (number % 300) for number in range(count)]
    expected = build_batch(Record(number, 5, None, value) for number, value in enumerate(values))
    assert at_once(value_batch(values, 5)) == expected


def test_a_large_batch_is_made_in_slices() -> None:
    assert sum(1 for _ in value_batch([b""] * 10 * SLICE, 5)) == 10


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        at_once(value_batch([], 5))
